"""Prints, as C++, the fields of what saved graphs say of Python functions.

    python saved_fields.py plugin/hostcall/_saving/tokens.py

Each class of msgspec's in that file is an object in JSON. Nothing of it is imported: a build has no
msgspec.
"""
# ruff: noqa: T201 - CMake reads what it prints

from __future__ import annotations

import ast
import sys
from pathlib import Path


def fields(source: str) -> dict[str, list[str]]:
    """Return the field names of each `msgspec.Struct` in `source`."""
    return {
        node.name: [one.target.id for one in node.body if _is_field(one)]
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and "msgspec.Struct" in map(ast.unparse, node.bases)
    }


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


if __name__ == "__main__":
    for name, known in fields(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        listed = ", ".join(f'"{field}"' for field in known)
        print(f"inline constexpr std::string_view k{name}[] = {{{listed}}};")

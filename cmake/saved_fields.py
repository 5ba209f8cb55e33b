"""Prints, as C++, the fields of what saved graphs say of Python functions.

    cd plugin/hostcall && python saved_fields.py _saved/tokens.py _functions/options.py

Each class of msgspec's in the first file is an object in JSON. `Declared` has the fields of
`DeclaredResult`, and the options in the second file with `saved=True`. Nothing of the files is
imported: a build has no msgspec.
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


def saved_options(source: str) -> list[str]:
    """Return the names of the fields in `source` whose value is a call with `saved=True`."""
    return [
        node.target.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Call)
        and "saved=True" in map(ast.unparse, node.value.keywords)
    ]


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


if __name__ == "__main__":
    tokens, options = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    objects = fields(tokens)
    objects["Declared"] = objects.pop("DeclaredResult") + saved_options(options)
    for name, known in objects.items():
        listed = ", ".join(f'"{field}"' for field in known)
        print(f"inline constexpr std::string_view k{name}[] = {{{listed}}};")

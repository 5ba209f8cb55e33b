"""The names of the product's classes, and of functions whose names alone say little."""

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "mlir/hostcall_mlir",
    "plugin/hostcall",
    "plugin/hostcall_command",
    "plugin/hostcall_runtime",
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def test_a_bare_class_name_means_one_class() -> None:
    found = collections.defaultdict(list)
    for path, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    assert len(found) > 300
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_find_call_and_write_are_public_in_one_module_each() -> None:
    found = collections.Counter(
        node.name
        for _, module in modules()
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name in {"find", "call", "write"}
    )
    assert max(found.values()) == 1

"""The functions of a Python file, and their parts."""

import ast
import itertools
from collections.abc import Iterator
from typing import Any

from tests.mutations.parts import Parts, Span


def python_parts(text: str, name: str) -> Iterator[Parts]:
    """Yield the functions and classes of a qualified name; that of the file is empty."""
    tree = ast.parse(text)
    for found, node in [("", tree), *_definitions(tree, "")]:
        if found == name:
            yield _parts(node, text)


def _parts(node: Any, text: str) -> Parts:
    lines = text.splitlines(keepends=True)
    begins = list(itertools.accumulate(map(len, lines), initial=0))

    def place(line: int, column: int) -> int:  # a column counts bytes
        return begins[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(first: Any, last: Any) -> Span:
        begin = place(first.lineno, first.col_offset)
        return begin, place(last.end_lineno, last.end_col_offset)

    inside = list(ast.walk(node))[1:]
    conditions = [condition for one in inside for condition in _conditions(one)]
    values = [pair for one in inside for pair in _values(one)]
    return Parts(
        whole=(0, len(text)) if isinstance(node, ast.Module) else span(node, node),
        body=span(node.body[0], node.body[-1]),
        statements=[span(one, one) for one in inside if isinstance(one, ast.stmt)],
        conditions=[span(one, one) for one in conditions],
        values=[(name, span(value, value)) for name, value in values],
    )


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _definitions(child, f"{prefix}{child.name}.")
        else:
            yield from _definitions(child, prefix)


def _conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values
    return node.ifs if isinstance(node, ast.comprehension) else []


def _values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.keyword) and node.arg:
        yield node.arg, node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
        yield ast.unparse(node.target), node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from ((ast.unparse(name), node.value) for name in names)

"""Tests of how precise the annotations of `plugin/` are."""

import ast
from collections.abc import Iterator
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "plugin"


def annotated_parameters(source: str) -> Iterator[tuple[str, str]]:
    """(name, annotation) of each annotated parameter; those of *args and **kwargs are left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if one.annotation is not None:
                    yield one.arg, ast.unparse(one.annotation)


def test_less_than_a_tenth_of_the_parameters_may_be_anything() -> None:
    of_files = {
        str(path.relative_to(PLUGIN)): list(annotated_parameters(path.read_text()))
        for path in sorted(PLUGIN.rglob("*.py"))
    }
    bare = {
        file: names
        for file, found in of_files.items()
        if (names := [name for name, annotation in found if annotation in ("Any", "typing.Any")])
    }
    share = sum(map(len, bare.values())) / sum(map(len, of_files.values()))
    # A value that is only looked at is an `object`; TensorFlow's are in hostcall._tf.types.
    assert share < 0.1, bare

"""docs/jax-behaviours.md: every test that it names is there, and every test for it is named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "jax-behaviours.md").read_text(encoding="utf-8")

_TEST = re.compile(r"`([\w/]+)::(test_\w+)`")
_NAMED = set(_TEST.findall(PAGE.split("## Values")[1]))


def names_in(file: Path) -> set[str]:
    """The names of the tests in a file, which is not run for it."""
    functions = ast.parse(file.read_text(encoding="utf-8")).body
    names = {node.name for node in functions if isinstance(node, ast.FunctionDef)}
    return {name for name in names if name.startswith("test_")}


@pytest.mark.parametrize("file", sorted({file for file, _ in _NAMED}))
def test_named_tests_exist(file: str) -> None:
    named = {name for other, name in _NAMED if other == file}
    assert named - names_in(TESTS / f"{file}.py") == set()


@pytest.mark.parametrize("path", sorted(TESTS.glob("*/test_behaviours*.py")), ids=lambda p: p.stem)
def test_tests_for_the_page_are_named(path: Path) -> None:
    file = str(path.relative_to(TESTS).with_suffix(""))
    assert names_in(path) - {name for other, name in _NAMED if other == file} == set()


def test_rows_name_tests_or_say_why_not() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    for behaviour, *cells, note in rows:
        if behaviour == "Behaviour" or behaviour.startswith("---"):
            continue
        assert all(cell == "-" or _TEST.search(cell) for cell in cells), behaviour
        assert note or "-" not in cells, behaviour

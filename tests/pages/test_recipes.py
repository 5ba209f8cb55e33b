"""docs/recipes.md: each recipe stands alone, and shows that it is one compiled program.

`test_pages` runs the page as one program, in which a recipe could use what an earlier one defines.
"""

import re
import subprocess
import sys

import pytest

from tests.support import pages

RECIPES = re.split(r"^## ", pages.read("docs/recipes.md"), flags=re.MULTILINE)[1:]
RUFF = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "-"]

_SHOWN = re.compile(
    r"hostcall\.explain\(.*\)\.headline\)\n```\n\n```text\n(?:.*\n)*?"
    r"one compiled program with \d script ops? in it\n```"
)


def test_names_are_defined_in_the_recipe_that_uses_them() -> None:
    for recipe in RECIPES:
        blocks = re.findall(r"^```python\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
        assert undefined("".join(blocks)) == "All checks passed!\n", recipe.splitlines()[0]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.splitlines()[0])
def test_recipe_shows_that_it_is_one_program(recipe: str) -> None:
    programs = recipe.count("```python\n")
    assert programs > 0
    assert len(_SHOWN.findall(recipe)) == programs


def test_name_that_nothing_defines_is_seen() -> None:
    assert "F821" in undefined("x = 1\nx + y\n")


def undefined(program: str) -> str:
    """Return Ruff's report on the undefined names of a program."""
    return subprocess.run(RUFF, input=program, capture_output=True, text=True).stdout

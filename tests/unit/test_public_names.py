"""The public names of hostcall, some of which are there only when they are asked for."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hostcall
import hostcall.jax
import hostcall_mlir

TAKE_OPTIONS: list[Any] = [hostcall.declare, hostcall.callback, hostcall.jax.call]


def test_all_names_are_there() -> None:
    for name in hostcall.__all__:
        assert getattr(hostcall, name) is not None


@pytest.mark.parametrize(
    ("module", "others"),
    [(hostcall, ["__version__", "jax"]), (hostcall.jax, []), (hostcall_mlir, [])],
)
def test_tab_completion_shows_public_names_alone(module: ModuleType, others: list[str]) -> None:
    assert dir(module) == sorted([*module.__all__, *others])


def test_the_package_for_jax_is_shown_once_it_is_imported(run_python: Callable[..., str]) -> None:
    script = "import hostcall; print('jax' in dir(hostcall), 'explain' in dir(hostcall))"
    assert run_python(script).split() == ["False", "True"]


@pytest.mark.parametrize("function", TAKE_OPTIONS)
def test_the_docstring_in_the_source_names_the_options_that_help_describes(function: Any) -> None:
    source = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").read_text()
    nodes = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    documented = [n for n in nodes if n.name == function.__name__ and ast.get_docstring(n)]
    (written,) = [ast.get_docstring(node) or "" for node in documented]  # the overloads have none
    (entry,) = re.findall(r"^  \*\*options: .*\n(?:    .*\n)*", written, re.MULTILINE)
    options = re.findall(r"`(\w+)`", entry)
    assert options
    arguments = function.__doc__.partition("Args:\n")[2].partition("\n\nReturns:")[0]
    assert re.findall(r"^  (\w+): ", arguments, re.MULTILINE)[-len(options) :] == options
    assert [*inspect.signature(function).parameters][-len(options) :] == options
    assert "**options" not in function.__doc__
    assert "{" not in written.partition("Examples:")[0]


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'hostcall' has no attribute 'no_such_name'"):
        hostcall.no_such_name  # noqa: B018
    assert not hasattr(hostcall, "bound")

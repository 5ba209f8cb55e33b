"""Checks that a fresh process finds the function."""

import functools
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall
from tests.support import process_pools

VECTOR = np.ones(3, np.float32)
OTHERS = ["threads", "huge", "compiled", "partitioned"]
DOUBLE = "def scaled(x):\n    return x * 2\n"

# Other processes have not imported TensorFlow when they import it.
_IN_TWO_WAYS = """
import sys

if "tensorflow" in sys.modules:
    def scaled(x):
        return x * 2
else:
    def scaled(x):
        return x * 2 + 0 * x
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    known = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - known:
        del sys.modules[name]
    process_pools.end_pools()


def function_of(folder: Path, module: str, text: str) -> Any:
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return importlib.import_module(module).scaled


def made_function() -> Any:
    """A function of a module that has no file."""
    module = types.ModuleType("made_while_it_runs")
    exec(DOUBLE, module.__dict__)
    sys.modules[module.__name__] = module
    return module.__dict__["scaled"]


def checked(function: Any, **options: Any) -> hostcall.CheckReport:
    callback = hostcall.callback(function, result=lambda x: x, stateful=False, **options)
    return hostcall.check(callback, VECTOR, raise_errors=False, skip=OTHERS)


def test_module_is_imported_once(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOUBLE + "class Of:\n    @staticmethod\n    def same(x):\n        return x\n"
    function = function_of(modules, "checked_once", text)
    report = checked(function)
    assert report.ok
    assert "name" in report.passed
    monkeypatch.setattr(sys, "executable", "nothing")
    for again in (function, sys.modules["checked_once"].Of.same):
        assert "name" in checked(again).passed


def test_callback_of_a_module_is_found_again(modules: Path) -> None:
    text = "class Callback:\n    pass\ndef inner(x):\n    return x * 2\nscaled = Callback()\n"
    text += "scaled.__hostcall_function__ = inner\ninner.__qualname__ = 'scaled'\n"
    callback = function_of(modules, "checked_callback", text)
    assert "name" in checked(callback.__hostcall_function__).passed


def test_function_that_is_defined_in_two_ways_is_found(modules: Path) -> None:
    (finding,) = checked(function_of(modules, "checked_twice", _IN_TWO_WAYS)).findings
    assert finding.check == "name"
    assert finding.what == "a fresh process finds another function under checked_twice:scaled"
    assert finding.line == 'hostcall.register(scaled, "checked_twice:scaled")    # in each process'


def test_module_that_exists_in_this_process_alone_is_found(modules: Path) -> None:
    (finding,) = checked(made_function()).findings
    assert finding.check == "name"
    assert "does not find made_while_it_runs:scaled: ModuleNotFoundError" in finding.what


def test_pickle_that_no_other_process_reads_is_found(modules: Path) -> None:
    report = checked(made_function(), executor=functools.partial(process_pools.one_process))
    (finding,) = report.findings
    assert finding.check == "pickling"
    assert "a fresh process cannot read it: ModuleNotFoundError" in finding.what
    assert finding.line == "from functions import scaled    # of a module of its own"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"name": "check::doubled"}, "check::doubled"), ({}, 'hostcall.register(function, "name")')],
    ids=["a name of the user's", "none"],
)
def test_function_that_no_other_process_can_find_is_not_looked_for(options: Any, said: str) -> None:
    report = checked(lambda x: x * 2, **options)
    [why] = [one.why for one in report.not_checked if one.check == "name"]
    assert said in why

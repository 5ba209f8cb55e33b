"""hostcall._saved.functions: which functions saved graphs may call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hostcall
from hostcall._saved import functions
from hostcall._saved.tokens import FunctionRecord, SavedFunctionError
from tests.support.helpers import assert_says
from tests.support.saved import functions as users

PLACE = f"{users.__name__}:halve"


def find(place: str | None, name: str | None = None) -> Any:
    return functions.saved_function(FunctionRecord(place=place, name=name), "model.py:7")[0]


def test_function_of_an_allowed_module_is_found() -> None:
    hostcall.allow(users.__name__)
    assert find(PLACE) is users.halve
    assert find(f"{users.__name__}:Scale.triple") is users.Scale.triple


def test_packages_are_allowed_by_whole_names_with_all_that_is_in_them() -> None:
    hostcall.allow("tests.sup", "test")
    with pytest.raises(SavedFunctionError, match=r"not allowed to import tests\.support"):
        find(PLACE)
    hostcall.allow("tests.support")
    assert find(PLACE) is users.halve


def test_what_is_provided_or_registered_is_found_without_leave() -> None:
    hostcall.provide("nowhere.at_all:solve", abs)
    assert find("nowhere.at_all:solve") is abs
    assert hostcall.register(len, "ns::size") is len
    assert find(None, "ns::size") is len
    hostcall.register(max, "ns::size")
    assert find(None, "ns::size") is max


def test_callbacks_are_found_by_their_names() -> None:
    known = hostcall.callback(lambda v: v, result=lambda v: v, name="tests::known_by_name")
    assert find(None, "tests::known_by_name") is known
    assert find(PLACE, "tests::known_by_name") is known


def test_environment_names_modules(run_python: Callable[..., str]) -> None:
    script = "import hostcall; from hostcall_runtime import _permissions as f; "
    script += "print(*[f.is_allowed(m) for m in ('a', 'a.b', 'b.c', 'b', 'ab')])"
    assert run_python(script, HOSTCALL_ALLOW="a, b.c") == "True True True False False\n"


def test_error_names_the_function_the_call_and_the_line_to_write() -> None:
    with pytest.raises(SavedFunctionError) as caught:
        find(PLACE)
    text = str(caught.value)
    assert f"calls the Python function {PLACE}, called at model.py:7" in text
    assert f'\n    hostcall.allow("{users.__name__}")' in text
    assert f"HOSTCALL_ALLOW={users.__name__}" in text
    with pytest.raises(SavedFunctionError, match=r'hostcall.provide\("ns::f", function\)'):
        find(None, "ns::f")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("os", "is not a function, but a module"),
        ("halve.__globals__", "is not a function of a module"),
        ("halve.__globals__.get", "is not a function of a module"),
        ("__builtins__", "does not exist"),
        ("Scale.__subclasses__", "does not exist"),
        ("Path.unlink", r"comes from pathlib(\._local)?, which is not allowed"),
        ("Array.tofile", "comes from numpy, which is not allowed"),
    ],
)
def test_what_is_no_function_of_the_module_is_refused(name: str, reason: str) -> None:
    hostcall.allow(users.__name__)
    with pytest.raises(SavedFunctionError, match=reason):
        find(f"{users.__name__}:{name}")


def test_modules_that_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostcall.allow("no_such_module_anywhere", "fails_when_imported")
    with pytest.raises(SavedFunctionError) as missing:
        find("no_such_module_anywhere.sub:f")
    assert_says(
        str(missing.value),
        "there is no module no_such_module_anywhere",
        '    sys.path.append("...")    # the directory of no_such_module_anywhere; or PYTHONPATH=',
    )
    (tmp_path / "fails_when_imported.py").write_text("raise KeyError('at import')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SavedFunctionError, match="KeyError: 'at import'") as caught:
        find("fails_when_imported:f")
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_is_no_function_or_name_cannot_be_given() -> None:
    with pytest.raises(TypeError, match=r"hostcall\.provide wants a function"):
        hostcall.provide("a:b", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a name for a function"):
        hostcall.register(abs, " ")

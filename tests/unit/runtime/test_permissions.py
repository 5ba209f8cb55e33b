"""hostcall_runtime._permissions: what files may import, and the line that says so."""

import subprocess
import sys
from typing import Any

import pytest

import hostcall
from hostcall_runtime import _permissions
from tests.support.saved import functions as users

USERS = users.__name__


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_permissions, "_allowed", {})


def test_both_packages_have_one_list() -> None:
    import hostcall_mlir

    assert hostcall_mlir.allow is hostcall.allow is _permissions.allow


def test_nothing_is_allowed_until_the_user_says_so() -> None:
    assert _permissions.allowed() == []
    for place in ("os:mkdir", "builtins:eval", "__main__:f", f"{USERS}:halve", "hostcall:allow"):
        assert _permissions.why_not(place) == f"not allowed to import {place.partition(':')[0]}"


def test_one_function_can_be_allowed_alone() -> None:
    hostcall.allow("numpy:sort", f"{USERS}:Scale.triple")
    assert _permissions.why_not("numpy:sort") is None
    assert _permissions.why_not("numpy:save") is not None
    assert _permissions.why_not("numpy:sort.more") is not None
    assert _permissions.why_not("numpy.linalg:sort") is not None
    assert not _permissions.is_allowed("numpy")
    assert _permissions.member(users, f"{USERS}:Scale.triple") is users.Scale.triple


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("os:mkdir", "os:mkdir"),
        ("os.path:join", "os.path:join"),
        ("numpy:sort", "numpy:sort"),
        ("scipy.special:expit", "scipy.special"),
        (f"{USERS}:halve", USERS),
        ("no_such_module:f", "no_such_module"),
        ("features:f", "features"),
    ],
)
def test_the_line_to_write_allows_as_little_as_is_wanted(place: str, named: str) -> None:
    line = f'hostcall.allow("{named}")    # or HOSTCALL_ALLOW={named} in the environment'
    assert _permissions.line_for(place) == line
    exec(line, {"hostcall": hostcall})
    assert _permissions.why_not(place) is None
    assert _permissions.line_for("os:mkdir", "hostcall_mlir").startswith("hostcall_mlir.allow(")


def test_what_leads_out_of_a_module_has_to_be_allowed_itself() -> None:
    hostcall.allow(USERS)
    place = f"{USERS}:Array.tofile"
    with pytest.raises(_permissions.PlaceError, match="comes from numpy, which is not") as raised:
        _permissions.member(users, place)
    assert raised.value.can_be_allowed
    exec(_permissions.line_for(place, alone=True), {"hostcall": hostcall})
    assert _permissions.member(users, place) is users.Array.tofile


@pytest.mark.parametrize("name", ["__builtins__", "halve.__globals__", "Scale.__mro__", "nothing"])
def test_what_is_no_member_is_refused_even_if_it_is_allowed_alone(name: str) -> None:
    place = f"{USERS}:{name}"
    _permissions._allowed[place] = None
    with pytest.raises(_permissions.PlaceError) as raised:
        _permissions.member(users, place)
    assert not raised.value.can_be_allowed


@pytest.mark.parametrize(
    "module",
    ["numpy:", ":sort", "a:b:c", "a b", "a:<lambda>", None, 3, "", "a:b c", "a.", "*"],
)
def test_what_is_no_name_cannot_be_allowed(module: Any) -> None:
    with pytest.raises(ValueError, match="is not a name of a module, such as 'package"):
        hostcall.allow(module)


def test_allow_needs_no_framework() -> None:
    script = (
        "import sys, hostcall, hostcall_mlir; hostcall.allow('a.b'); hostcall_mlir.allow('c:d'); "
        "print(sorted({'tensorflow', 'jax'} & {*sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr

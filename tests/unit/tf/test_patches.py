"""hostcall._tf.patches: what hostcall puts into TensorFlow comes out again, and goes in again."""

import functools
import json
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import _installation
from hostcall._tf import eager_execution, features
from hostcall_runtime._patching import Replacement

pytestmark = pytest.mark.usefixtures("enabled_again")

_TABLE = _installation.TABLE

# Looks up what a patch names, `a.module.Class.attribute` or `a.module.object["key"]`.
_LOOK_UP = """
import importlib, inspect, json

def look_up(target):
    path, _, key = target.partition("[")
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
            break
        except ImportError:
            pass
    for part in parts[count:]:
        found = inspect.getattr_static(found, part)
    return getattr(found, "_registry", found).get(json.loads(key[:-1])) if key else found

targets = {targets}
before = [look_up(target) for target in targets]
hooks = list(look_up("tensorflow.python.eager.polymorphic_function.transform"
                     ".FUNC_GRAPH_TRANSFORMS"))
import hostcall
from hostcall import _installation
from hostcall._tf import eager_execution
eager_execution.refuse()
patches = _installation.TABLE.patches
assert [patch.target for patch in patches] == targets
"""

_COMES_OUT = """
hostcall.disable()
changed = [t for t, stock in zip(targets, before) if look_up(t) is not stock]
now = {p.target: p.current() for p in patches}
transforms = now.pop([t for t in targets if t.endswith("TRANSFORMS")][0])
assert transforms == hooks == []
changed += [t for t, stock in zip(targets, before) if t in now and now[t] is not stock]
print(json.dumps(changed))
"""
_STAYS_OUT = """
changed = [t for t, stock in zip(targets, before) if look_up(t) is not stock]
assert changed == [_installation.NOTE.target], changed  # it adds a note to an error
print("[]")
"""


@pytest.mark.parametrize(
    ("then", "switch"),
    [(_COMES_OUT, {}), (_STAYS_OUT, {"HOSTCALL_DISABLE": "1"})],
    ids=["disabled", "switched off by the environment"],
)
def test_each_attribute_is_as_before(run_python: Any, then: str, switch: dict[str, str]) -> None:
    targets = [patch.target for patch in _TABLE.patches]
    assert json.loads(run_python(_LOOK_UP.format(targets=targets) + then, **switch)) == []


def test_enabled_each_attribute_is_ours_again() -> None:
    eager_execution.refuse()
    assert _TABLE.installed == _TABLE.patches
    enabled = {patch.target: patch.current() for patch in _TABLE.patches}
    hostcall.disable()
    assert _TABLE.installed == ()
    disabled = {patch.target: patch.current() for patch in _TABLE.patches}
    for target, ours in enabled.items():
        assert disabled[target] is not ours, target
    hostcall.enable()
    for patch in _TABLE.patches:
        if patch.target.endswith('XlaCallModule"]'):
            assert patch.current() is not None  # a new entry each time
        elif patch.target.endswith("TRANSFORMS"):
            assert patch.current() == enabled[patch.target]
        else:
            assert patch.current() is enabled[patch.target], patch.target


def test_somebody_elses_patch_of_tensorflow_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    ours = tf.compat.v1.Session.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append("theirs")
        return ours(self, *args, **kwargs)

    base = tf.compat.v1.Session.__mro__[1]
    monkeypatch.setattr(base, "run", run)
    for switch in (hostcall.disable, hostcall.enable):
        switch()
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            assert session.run(tf.numpy_function(lambda: np.float32(2.0), [], tf.float32)) == 2.0
        assert base.run is run
    assert seen == ["theirs", "theirs"]


def test_no_python_code_looks_up_the_context() -> None:
    """TensorFlow's kernel of `tf.py_function` aborts the process if Ctrl-C comes into such code."""
    called: list[str] = []
    tf.constant(0.0)  # makes the context

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        handle = features.py_funcs._ctx
    finally:
        sys.setprofile(None)
    assert called == []
    assert handle is not None


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("op", [tf.py_function, tf.numpy_function])
def test_ctrl_c_in_a_registry(op: Any, jit_compile: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with hostcall.scope(route="partition"):
        program = tf.function(lambda x: op(lambda v: v, [x], x.dtype), jit_compile=jit_compile)
        program(tf.ones([3]))
    monkeypatch.setattr(type(features.py_funcs), "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        program(tf.ones([3]))


def _replacement(owner: Any) -> Replacement:
    def wrap(method: Any, patch: Replacement) -> Any:
        @functools.wraps(method)
        def call(self: Any) -> str:
            return f"ours of {method(self)}" if patch.installed else str(method(self))

        return call

    return Replacement(
        lambda: vars(owner)["method"], lambda value: setattr(owner, "method", value), wrap
    )


@pytest.fixture
def owner() -> Any:
    """A class of its own, with a method."""
    return type("Owner", (), {"method": lambda self: "stock"})


def _wrap_once_more(owner: Any) -> Any:
    inner = owner.method
    owner.method = lambda self: f"theirs of {inner(self)}"
    return inner


def test_what_others_put_around_ours_stays_and_ours_does_nothing(owner: Any) -> None:
    replacement = _replacement(owner)
    replacement.install()
    _wrap_once_more(owner)
    assert owner().method() == "theirs of ours of stock"
    replacement.uninstall()
    assert owner().method() == "theirs of stock"
    replacement.install()
    assert owner().method() == "theirs of ours of stock"


def test_ours_comes_out_when_others_have_taken_theirs_away(owner: Any) -> None:
    stock, replacement = owner.method, _replacement(owner)
    replacement.install()
    ours = _wrap_once_more(owner)
    replacement.uninstall()
    owner.method = ours
    assert owner().method() == "stock"
    replacement.install()
    assert owner().method() == "ours of stock"
    replacement.uninstall()
    assert owner.method is stock


def test_what_others_put_there_while_ours_is_out_is_kept(owner: Any) -> None:
    replacement = _replacement(owner)
    replacement.install()
    replacement.uninstall()
    _wrap_once_more(owner)
    theirs = owner.method
    replacement.install()
    assert owner().method() == "ours of theirs of stock"
    replacement.uninstall()
    assert owner.method is theirs

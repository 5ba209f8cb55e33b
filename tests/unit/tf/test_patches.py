"""hostcall._patches: what is replaced in TensorFlow comes out again, and goes in again."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import _patches
from hostcall._callbacks import tape_residuals
from hostcall._tf import module_gradient
from hostcall._tf.replacements import Replacement

_TABLE = _patches.TABLE
X = tf.constant([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    yield
    hostcall.enable()


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
    return found._registry.get(json.loads(key[:-1])) if key else found

targets = {targets}
before = [look_up(target) for target in targets]
hooks = list(look_up("tensorflow.python.eager.polymorphic_function.transform"
                     ".FUNC_GRAPH_TRANSFORMS"))
import hostcall
from hostcall import _patches
from hostcall._tf import module_gradient
module_gradient.refuse()
patches = _patches.TABLE.patches
assert [patch.target for patch in patches] == targets
"""

_COMES_OUT = (
    _LOOK_UP
    + """
hostcall.disable()
changed = [t for t, stock in zip(targets, before) if look_up(t) is not stock]
now = {{p.target: p.current() for p in patches}}
transforms = now.pop([t for t in targets if t.endswith("TRANSFORMS")][0])
assert transforms == hooks == []
changed += [t for t, stock in zip(targets, before) if t in now and now[t] is not stock]
print(json.dumps(changed))
"""
)


def test_disabled_each_attribute_is_the_object_that_it_was_before_the_import(
    run_python: Any,
) -> None:
    targets = [patch.target for patch in _TABLE.patches]
    assert json.loads(run_python(_COMES_OUT.format(targets=targets))) == []


_STAYS_OUT = (
    _LOOK_UP
    + """
print(json.dumps([t for t, stock in zip(targets, before) if look_up(t) is not stock]))
"""
)


def test_switched_off_by_the_environment_nothing_is_replaced(run_python: Any) -> None:
    targets = [patch.target for patch in _TABLE.patches]
    script = _STAYS_OUT.format(targets=targets)
    assert json.loads(run_python(script, HOSTCALL_DISABLE="1")) == []


def test_enabled_each_attribute_is_ours_again() -> None:
    module_gradient.refuse()
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


def test_each_patch_says_what_it_is_for() -> None:
    for patch in _TABLE.patches:
        assert patch.target.startswith("tensorflow.")
        assert patch.why.endswith(".")
    for what, why in _patches.PERMANENT.items():
        assert what
        assert why.endswith(".")


_STOCK_PROGRAMS = """
import os, tempfile
import numpy as np, tensorflow as tf
from tensorflow.python.ops import script_ops
{hostcall}
x = tf.constant([1.0, 2.0, 3.0])

def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        lines = str(error).splitlines()
        return type(error).__name__, [line for line in lines if "File" not in line]

cube = lambda x: tf.py_function(lambda x: x ** 3, [x], tf.float32)
def gradient(function):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y.numpy(), tape.gradient(y, x).numpy()

print(outcome(gradient, cube), outcome(gradient, tf.function(cube)))
twice = lambda x: tf.numpy_function(lambda x: 2 * x, [x], tf.float32)
print(outcome(lambda: (twice(x).numpy(), tf.function(twice)(x).numpy())))

def fails(x):
    raise ValueError("no such value")

for op in (tf.numpy_function, tf.py_function, tf.compat.v1.py_func):
    call = lambda x, op=op: op(fails, [x], tf.float32)
    print(outcome(call, x))
    print(outcome(tf.function(call), x))
print(outcome(tf.function(lambda x: tf.py_function(lambda x: (x, x), [x], tf.float32)), x))

def numbers():
    yield from range(3)

data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
print([int(n) for n in data], [int(n) for n in data.map(lambda n: n + 1)])

with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    given = tf.compat.v1.placeholder(tf.float32, [3])
    y = tf.py_function(lambda x: x * x, [given], tf.float32)
    print(session.run([y, *tf.gradients(y, given)], {{given: [1.0, 2.0, 3.0]}}))
    failing = tf.numpy_function(fails, [given], tf.float32)
    print(outcome(session.run, failing, {{given: [1.0, 2.0, 3.0]}}))

module = tf.Module()
module.call = tf.function(cube, input_signature=[tf.TensorSpec([3], tf.float32)])
with tempfile.TemporaryDirectory() as folder:
    tf.saved_model.save(module, folder)
    loaded = tf.saved_model.load(folder)
    print(loaded.call(x).numpy())
print([op.get_attr("token") for op in module.call.get_concrete_function().graph.get_operations()
       if op.type == "EagerPyFunc"])
print(outcome(tf.function(lambda x: x / 2, jit_compile=True), x))
"""


def test_disabled_a_stock_program_has_the_outcome_of_a_process_without_hostcall(
    run_python: Callable[..., str],
) -> None:
    stock = run_python(_STOCK_PROGRAMS.format(hostcall=""))
    assert "ValueError: no such value" in stock
    off = "import hostcall; hostcall.disable()"
    assert run_python(_STOCK_PROGRAMS.format(hostcall=off)) == stock
    again = "import hostcall; hostcall.disable(); hostcall.enable(); hostcall.disable()"
    assert run_python(_STOCK_PROGRAMS.format(hostcall=again)) == stock


def _cube(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])


def _gradient(function: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = function(X)
    return tape.gradient(y, X)


@tf.function
def _in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = tf.ensure_shape(tf.py_function(lambda x: x**2, [x], tf.float32), [3])
    return x


@tf.function
def _in_a_branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 0.0, lambda: _cube(x), lambda: x)


_in_a_call = tf.function(lambda x: tf.function(_cube)(x))


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        pytest.param(_in_a_loop, 4.0 * X**3, id="loop"),
        pytest.param(_in_a_branch, 3.0 * X**2, id="branch"),
        pytest.param(_in_a_call, 3.0 * X**2, id="call"),
    ],
)
def test_graphs_traced_before_have_their_gradients_while_disabled(
    program: Any, wanted: tf.Tensor
) -> None:
    program.get_concrete_function(X)
    hostcall.disable()
    for _ in range(2):
        np.testing.assert_allclose(_gradient(program), wanted)


def test_a_pure_function_traced_before_has_its_gradient_while_disabled() -> None:
    @hostcall.declare(pure=True)
    def square(x: tf.Tensor) -> tf.Tensor:
        return x**2

    program = tf.function(lambda x: tf.py_function(square, [x], tf.float32))
    program.get_concrete_function(X)
    hostcall.disable()
    np.testing.assert_allclose(_gradient(program), 2.0 * X)


@tf.RegisterGradient("HostcallTestOfSeven")
def _seven(op: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    return 7.0 * upstream


@pytest.mark.parametrize("pure", [True, False])
def test_a_gradient_that_the_user_maps_to_stays_the_users(pure: bool) -> None:
    square = hostcall.declare(lambda x: x**2, pure=pure)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        with graph.gradient_override_map({"EagerPyFunc": "HostcallTestOfSeven"}):
            y = tf.py_function(square, [x], tf.float32)
        (dy,) = tf.gradients(y, x)
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(dy, {x: X.numpy()}).tolist() == [7.0, 7.0, 7.0]


def test_graphs_of_version_1_made_before_have_their_gradients_while_disabled() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        y = _cube(x)
        hostcall.disable()
        (dy,) = tf.gradients(y, x)
        with tf.compat.v1.Session(graph=graph) as session:
            computed = session.run(dy, {x: X.numpy()})
    np.testing.assert_allclose(computed, 3.0 * X**2)


def test_copies_of_graphs_made_before_have_their_gradients_while_disabled() -> None:
    concrete = tf.function(_cube).get_concrete_function(X)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        (y,) = tf.graph_util.import_graph_def(
            concrete.graph.as_graph_def(),
            input_map={concrete.inputs[0].name: x},
            return_elements=[concrete.outputs[0].name],
        )
        hostcall.disable()
        (dy,) = tf.gradients(y, x)
        with tf.compat.v1.Session(graph=graph) as session:
            computed = session.run(dy, {x: X.numpy()})
    np.testing.assert_allclose(computed, 3.0 * X**2)


def test_a_saved_model_loaded_before_has_its_gradient_while_disabled(tmp_path: Any) -> None:
    module = tf.Module()
    module.call = tf.function(_cube, input_signature=[tf.TensorSpec([3], tf.float32)])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    hostcall.disable()
    np.testing.assert_allclose(_gradient(loaded.call), 3.0 * X**2)


def test_calls_while_disabled_keep_the_latest_recordings_alone() -> None:
    program = tf.function(_cube)
    _gradient(program)
    hostcall.disable()
    before = len(tape_residuals._residuals)
    for _ in range(tape_residuals._MANY_UNTOLD + 20):
        program(X)
    assert len(tape_residuals._residuals) <= before + tape_residuals._MANY_UNTOLD
    np.testing.assert_allclose(_gradient(program), 3.0 * X**2)


class _Owner:
    def method(self) -> str:
        return "stock"


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
def owner() -> type[_Owner]:
    return type("_Own", (), dict(vars(_Owner)))


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

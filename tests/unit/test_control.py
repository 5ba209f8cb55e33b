"""hostcall._control: switching on and off, and what is done when a module is imported."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import _control, _installation
from hostcall._control import when_imported
from hostcall._ops import tape_residuals
from tests.support.helpers import each_public_op, gradient_of, jitted

pytestmark = pytest.mark.usefixtures("enabled_again")

X = tf.constant([1.0, 2.0, 3.0])


def _jitted(op: Any) -> Any:
    return jitted(lambda x: tf.ensure_shape(op(lambda x: x + np.float32(1.0), [x], x.dtype), [3]))


@each_public_op
def test_disabled_functions_fail_and_say_why(op: Any) -> None:
    program = _jitted(op)
    hostcall.disable()
    with pytest.raises(tf.errors.InvalidArgumentError, match="hostcall is disabled") as caught:
        program(X)
    assert "hostcall.enable()" in str(caught.value)


@each_public_op
def test_a_function_traced_while_disabled_works_once_enabled(op: Any) -> None:
    program = _jitted(op)
    hostcall.disable()
    program.get_concrete_function(X)
    hostcall.enable()
    np.testing.assert_array_equal(_jitted(op)(X), X + 1.0)


@each_public_op
def test_compiled_programs_go_on_while_disabled(op: Any) -> None:
    program = _jitted(op)
    np.testing.assert_array_equal(program(X), X + 1.0)
    hostcall.disable()
    np.testing.assert_array_equal(program(X), X + 1.0)


def test_gradients_of_compiled_programs_go_on_while_disabled() -> None:
    program = jitted(lambda x: gradient_of(_cube, x))
    np.testing.assert_array_equal(program(X), 3.0 * X**2)
    hostcall.disable()
    np.testing.assert_array_equal(program(X), 3.0 * X**2)


def test_enabling_and_disabling_twice_is_no_error() -> None:
    for switch in (hostcall.enable, hostcall.disable, hostcall.enable, hostcall.disable):
        switch()
        once = _installation.TABLE.installed
        switch()
        assert _installation.TABLE.installed == once
    hostcall.enable()
    np.testing.assert_array_equal(_jitted(tf.py_function)(X), X + 1.0)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, True), ("", True), ("0", True), ("1", False), ("true", False)]
)
def test_the_environment_variable(monkeypatch: Any, value: str | None, expected: bool) -> None:
    monkeypatch.delenv("HOSTCALL_DISABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("HOSTCALL_DISABLE", value)
    assert _control.enabled_by_environment() is expected


_SWITCHED_ON_LATER = """
import numpy as np, tensorflow as tf, hostcall
hostcall.disable()
hostcall.enable()
spec = tf.TensorSpec([2], tf.float32)
f = tf.function(lambda x: tf.numpy_function(np.sqrt, [x], spec), jit_compile=True)
print(f(tf.constant([1.0, 4.0])).numpy())
"""


def test_enable_overrides_the_environment(run_python: Any) -> None:
    assert run_python(_SWITCHED_ON_LATER, HOSTCALL_DISABLE="1") == "[1. 2.]\n"


_REFUSED = """
import traceback
import numpy as np, tensorflow as tf, hostcall
for op in (tf.numpy_function, tf.py_function):
    try:
        tf.function(lambda x: op(np.sqrt, [x], tf.float32), jit_compile=True)(tf.constant([1.0]))
    except tf.errors.InvalidArgumentError as error:
        print("HOSTCALL" in error.message, traceback.format_exception_only(error)[-1])
"""


def test_an_error_names_the_environment_variable(run_python: Any) -> None:
    printed = run_python(_REFUSED, HOSTCALL_DISABLE="1")
    note = "False hostcall is switched off: HOSTCALL_DISABLE is set in the environment."
    assert printed.count(note) == 2
    assert "hostcall.enable()" in printed


# What was traced, copied or recorded before keeps its gradients.


def _cube(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])


def _in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = tf.ensure_shape(tf.py_function(lambda x: x**2, [x], tf.float32), [3])
    return x


@hostcall.declare(pure=True)
def _square(x: tf.Tensor) -> tf.Tensor:
    return x**2


PROGRAMS = {
    "loop": (_in_a_loop, 4.0 * X**3),
    "branch": (lambda x: tf.cond(x[0] > 0.0, lambda: _cube(x), lambda: x), 3.0 * X**2),
    "call": (lambda x: tf.function(_cube)(x), 3.0 * X**2),
    "pure": (lambda x: tf.py_function(_square, [x], tf.float32), 2.0 * X),
}


@pytest.mark.parametrize(("function", "wanted"), PROGRAMS.values(), ids=PROGRAMS)
def test_graphs_traced_before_keep_their_gradients(function: Any, wanted: tf.Tensor) -> None:
    program = tf.function(function)
    program.get_concrete_function(X)
    hostcall.disable()
    for _ in range(2):
        np.testing.assert_allclose(gradient_of(program, X), wanted)


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


@pytest.mark.parametrize("copied", [False, True])
def test_graphs_of_version_1_made_before_have_their_gradients_while_disabled(copied: bool) -> None:
    concrete = tf.function(_cube).get_concrete_function(X)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        if copied:
            (y,) = tf.graph_util.import_graph_def(
                concrete.graph.as_graph_def(),
                input_map={concrete.inputs[0].name: x},
                return_elements=[concrete.outputs[0].name],
            )
        else:
            y = _cube(x)
        hostcall.disable()
        (dy,) = tf.gradients(y, x)
        with tf.compat.v1.Session(graph=graph) as session:
            computed = session.run(dy, {x: X.numpy()})
    np.testing.assert_allclose(computed, 3.0 * X**2)


@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written:UserWarning")
def test_a_saved_model_loaded_before_has_its_gradient_while_disabled(tmp_path: Any) -> None:
    module = tf.Module()
    module.call = tf.function(_cube, input_signature=[tf.TensorSpec([3], tf.float32)])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    hostcall.disable()
    np.testing.assert_allclose(gradient_of(loaded.call, X), 3.0 * X**2)


def test_calls_while_disabled_keep_the_latest_recordings_alone() -> None:
    program = tf.function(_cube)
    gradient_of(program, X)
    hostcall.disable()
    before = len(tape_residuals._residuals)
    for _ in range(tape_residuals._MANY_UNTOLD + 20):
        program(X)
    assert len(tape_residuals._residuals) <= before + tape_residuals._MANY_UNTOLD
    np.testing.assert_allclose(gradient_of(program, X), 3.0 * X**2)


def test_a_tape_that_recorded_an_eager_call_before_says_so_while_disabled() -> None:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = tf.py_function(lambda x: x**3, [X], tf.float32)
    hostcall.disable()
    with pytest.raises(tf.errors.UnknownError, match=r"or call hostcall.enable\(\) first"):
        tape.gradient(y, X)
    hostcall.enable()
    np.testing.assert_allclose(tape.gradient(y, X), 3.0 * X**2)


# What is done when a module is imported.

NAME = "watched_package"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / NAME
    directory.mkdir()
    (directory / "__init__.py").write_text("from watched_package.part import VALUE\n")
    (directory / "part.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield directory
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


@pytest.mark.parametrize("imported", [NAME, f"{NAME}.part"])
def test_it_is_done_once_when_the_whole_package_is_imported(package: Path, imported: str) -> None:
    values: list[int] = []
    when_imported(NAME, lambda: values.append(sys.modules[NAME].VALUE))
    when_imported(NAME, lambda: values.append(10 * sys.modules[NAME].VALUE))
    importlib.import_module(imported)
    assert sorted(values) == [1, 10]
    importlib.reload(sys.modules[NAME])
    assert sorted(values) == [1, 10]
    spec = sys.modules[NAME].__spec__
    assert spec is not None
    assert type(spec.loader) is SourceFileLoader  # the one that it would have
    assert "exec_module" not in vars(spec.loader)


def test_neither_a_search_nor_an_import_that_fails_counts(package: Path) -> None:
    done: list[str] = []
    when_imported(NAME, lambda: done.append("done"))
    assert importlib.util.find_spec(NAME) is not None
    (package / "part.py").write_text("raise OSError('not yet')\n")
    with pytest.raises(OSError, match="not yet"):
        importlib.import_module(NAME)
    assert not done
    (package / "part.py").write_text("VALUE = 2  # now it works\n")
    importlib.import_module(NAME)
    assert done == ["done"]


def test_a_module_that_is_nowhere_is_not_found() -> None:
    finders = list(sys.meta_path)
    when_imported("hostcall_knows_no_such_module", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="hostcall_knows_no_such_module"):
        importlib.import_module("hostcall_knows_no_such_module")
    sys.meta_path[:] = finders

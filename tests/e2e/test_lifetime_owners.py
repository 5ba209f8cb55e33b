"""A Python function lives as long as what can call it: a program, or what is left of one."""

import functools
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import hostcall
from tests.support.helpers import each_mode, gradient_of, jitted, like, plain

SPEC = tf.TensorSpec([2], tf.float32)
X = tf.constant([1.0, -2.0])


class Factor:
    living: ClassVar["weakref.WeakSet[Factor]"] = weakref.WeakSet()
    value = np.float32(3.0)

    def __init__(self) -> None:
        Factor.living.add(self)

    def times(self, x: Any) -> Any:
        return x * self.value

    def spec(self, x: Any) -> Any:
        return tf.TensorSpec(x.shape, x.dtype)


class Times(Factor):
    def __call__(self, x: Any) -> Any:
        return self.times(x)


def multiply(factor: Factor, x: Any) -> Any:
    return x * factor.value


def living() -> int:
    gc.collect()
    return len(Factor.living)


@pytest.fixture(autouse=True)
def none_from_before() -> None:
    assert living() == 0


# Each makes a function from a Factor, and is what alone holds it.
HELD_BY: dict[str, Callable[[], Callable[..., Any]]] = {
    "bound method": lambda: Factor().times,
    "callable": Times,
    "partial": lambda: functools.partial(multiply, Factor()),
    "partial of a method": lambda: functools.partial(Factor().times),
    "closure": lambda: (lambda factor: lambda x: x * factor.value)(Factor()),
    "default": lambda: lambda x, factor=Factor(): x * factor.value,  # noqa: B008
}


def by_py_function(function: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(function, [x], SPEC)


def by_declared_function(function: Any, x: tf.Tensor) -> tf.Tensor:
    # Where it can, the declaration holds what it is a declaration of.
    result = function.__self__.spec if hasattr(function, "__self__") else like
    hostcall.declare(function, result=result, timeout=60.0)
    return tf.numpy_function(function, [x], tf.float32)


def by_gradient(function: Any, x: tf.Tensor) -> tf.Tensor:
    """The gradient of an identity, which is said to be `function` of its upstream."""
    called_back = hostcall.callback(function, result=SPEC)
    identity = hostcall.callback(
        lambda x: x, result=SPEC, grad=lambda inputs, results, upstream: called_back(upstream)
    )
    return gradient_of(identity, x, upstream=x)


def in_a_loop(function: Any, x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        called = lambda: tf.ensure_shape(by_py_function(function, x), x.shape)  # noqa: E731
        return i + 1, tf.cond(x[0] > 0.0, called, lambda: y)

    return tf.while_loop(lambda i, y: i < 2, body, (0, x))[1]


USES: dict[str, Callable[[Any, tf.Tensor], Any]] = {
    "py_function": by_py_function,
    "numpy_function": lambda function, x: tf.numpy_function(function, [x], SPEC),
    "py_func": lambda function, x: tf.compat.v1.py_func(function, [x], SPEC),
    "declared function": by_declared_function,
    "callback": lambda function, x: hostcall.callback(function, result=SPEC)(x),
    "eager callback": lambda function, x: hostcall.callback(function, result=SPEC, kind="eager")(x),
    "gradient": by_gradient,
    "in a loop": in_a_loop,
    "in an inner function": lambda function, x: jitted(lambda x: by_py_function(function, x))(x),
}


# Every way to hold a function where it costs little, and two of them everywhere.
HOLDERS = {use: [*HELD_BY] if use in [*USES][:2] else ["bound method", "closure"] for use in USES}
each_case = pytest.mark.parametrize(
    ("use", "held_by"), [(use, held_by) for use, holders in HOLDERS.items() for held_by in holders]
)


@each_mode
@each_case
def test_what_only_a_program_holds(mode: Any, use: str, held_by: str) -> None:
    def build() -> Any:
        function = HELD_BY[held_by]()
        program = mode(lambda x: USES[use](function, x))
        program.get_concrete_function(SPEC)
        return program

    program = build()
    for _ in range(2):
        assert living() == 1
        np.testing.assert_array_equal(program(X), 3.0 * X)
    del program
    assert living() == 0


@each_case
def test_what_only_an_eager_call_holds(use: str, held_by: str) -> None:
    np.testing.assert_array_equal(USES[use](HELD_BY[held_by](), X), 3.0 * X)
    assert living() == 0


# What keeps a program alive: each takes one, and returns all that is left of it.


def only_a_module(mode: Any, program: Any) -> Any:
    module = tf.Module()
    module.program = mode(program)
    return lambda x: module.program(x)


def only_a_tape(mode: Any, program: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = mode(program)(X)
    return lambda x: tape.gradient(y, X, output_gradients=x)


def only_a_dataset(mode: Any, program: Any) -> Any:
    dataset = tf.data.Dataset.from_tensors(X).map(mode(program))
    return lambda x: next(iter(dataset))


def only_an_iterator(mode: Any, program: Any) -> Any:
    iterator = iter(tf.data.Dataset.from_tensors(X).repeat(4).map(mode(program)))
    return lambda x: next(iterator)


def _v1_graph(mode: Any, program: Any) -> tf.Graph:
    with tf.Graph().as_default() as graph:
        tf.identity(mode(program)(tf.compat.v1.placeholder(tf.float32, [2], "x")), "y")
    return graph


def _session(graph: tf.Graph) -> Any:
    session = tf.compat.v1.Session(graph=graph)
    return lambda x: session.run("y:0", {"x:0": x.numpy()})


def only_a_pruned_function(mode: Any, program: Any) -> Any:
    inner = program if mode is plain else mode(program)  # the op itself in the graph, or a call
    wrapped = tf.compat.v1.wrap_function(lambda x: tf.identity(inner(x), "y"), [SPEC])
    return wrapped.prune(wrapped.inputs, wrapped.graph.get_tensor_by_name("y:0"))


def only_a_frozen_function(mode: Any, program: Any) -> Any:
    frozen = convert_variables_to_constants_v2(mode(program).get_concrete_function(SPEC))
    return lambda x: frozen(x)[0]


def only_an_imported_graph(mode: Any, program: Any) -> Any:
    graph = _v1_graph(mode, program)
    with tf.Graph().as_default() as copy:
        tf.import_graph_def(graph.as_graph_def(), name="")
    return _session(copy)


def concrete(function: Any) -> Any:
    return function.get_concrete_function(SPEC)


def calling(function: Any) -> Callable[[tf.Tensor], Any]:
    return lambda x: function(x)


SURVIVORS: dict[str, Callable[[Any, Any], Any]] = {
    "concrete function": lambda mode, program: concrete(mode(program)),
    "traced caller": lambda mode, program: concrete(plain(calling(mode(program)))),
    "compiled caller": lambda mode, program: concrete(jitted(calling(mode(program)))),
    "gradient function": lambda mode, program: concrete(
        mode(lambda x: gradient_of(program, x, upstream=x))
    ),
    "module": only_a_module,
    "tape": only_a_tape,
    "dataset": only_a_dataset,
    "iterator": only_an_iterator,
    "v1 session": lambda mode, program: _session(_v1_graph(mode, program)),
    "v1 function": lambda mode, program: tf.compat.v1.wrap_function(mode(program), [SPEC]),
    "pruned function": only_a_pruned_function,
    "frozen function": only_a_frozen_function,
    "imported graph": only_an_imported_graph,
}


@each_mode
@pytest.mark.parametrize("survivor", SURVIVORS)
def test_what_is_left_of_a_program_keeps_its_function(mode: Any, survivor: str) -> None:
    left = SURVIVORS[survivor](mode, functools.partial(by_py_function, Factor().times))
    for _ in range(3):
        assert living() == 1
        np.testing.assert_array_equal(left(X), 3.0 * X)
    del left
    assert living() == 0


def test_a_keras_model_keeps_what_its_layers_call_and_no_longer() -> None:
    """Keras itself never frees a model that was trained."""
    layer = keras.layers.Lambda(hostcall.callback(Factor().times, result=like, kind="eager"))
    model = keras.Sequential([keras.Input([2]), layer])
    model.compile("sgd", "mse", jit_compile=True)
    predict, x = model.predict, tf.ones([8, 2])
    del model, layer
    for _ in range(2):
        assert living() == 1
        np.testing.assert_array_equal(predict(x, verbose=0), 3.0 * x)
    del predict
    assert living() == 0


def save(path: Path, mode: Any) -> None:
    """Write a SavedModel, of which nothing else is left."""
    double = hostcall.callback(
        lambda x: 2.0 * x, result=SPEC, grad=lambda inputs, results, upstream: 2.0 * upstream
    )

    def program(x: tf.Tensor) -> tf.Tensor:
        absolute = tf.numpy_function(np.abs, [x], SPEC)
        return double(x) + by_py_function(tf.square, x) + 0.0 * absolute

    module = tf.Module()
    module.program = tf.function(mode(program), input_signature=[SPEC])
    tf.saved_model.save(module, str(path), signatures={"run": module.program})


@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written:UserWarning")
@each_mode
def test_a_saved_model_is_loaded_when_all_else_is_gone(mode: Any, tmp_path: Path) -> None:
    """It may be read back at any time: its functions live as long as the process."""
    save(tmp_path, mode)
    expected = 2.0 * X + X**2
    for _ in range(2):
        gc.collect()
        loaded = tf.saved_model.load(str(tmp_path))
        np.testing.assert_array_equal(loaded.program(X), expected)
        gradient = gradient_of(lambda x, loaded=loaded: tf.reduce_sum(loaded.program(x) ** 2), X)
        np.testing.assert_allclose(gradient, 2.0 * expected * (2.0 + 2.0 * X))
        signature = loaded.signatures["run"]
        del loaded
        gc.collect()
        np.testing.assert_array_equal(next(iter(signature(x=X).values())), expected)

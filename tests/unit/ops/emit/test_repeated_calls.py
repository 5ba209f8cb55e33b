"""Calls that repeat an earlier one: what they return, and when they go TensorFlow's way."""

import collections
import contextlib
import copy
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import tracing_compilation

import hostcall
from tests.support.fate import Fate
from tests.support.helpers import failure, gradient_of, jitted, raising
from tests.support.stress.template import Template
from tests.support.threads import in_threads

X, Y = tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])


class Calls:
    """The calls of `tf.function`s that go TensorFlow's way, and the traces of `program`."""

    def __init__(self) -> None:
        self.usual = 0
        self.traces: list[Any] = []

    def program(self, *args: Any, **kwargs: Any) -> Any:
        """A sum of the tensors in the arguments, each by another factor, on the host."""
        self.traces.append((args, kwargs))
        leaves = tf.nest.flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, tf.Tensor)]
        others = [leaf for leaf in leaves if not isinstance(leaf, tf.Tensor)]

        def total(*arrays: np.ndarray) -> Any:
            scaled = [10.0**place * array.sum() for place, array in enumerate(arrays)]
            return np.float32(sum(scaled) + 1000 * sum(map(len, map(str, others))))

        return tf.numpy_function(total, tensors, tf.TensorSpec([], tf.float32))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    count, stock = Calls(), tracing_compilation.call_function

    def usual(*args: Any, **kwargs: Any) -> Any:
        count.usual += 1
        return stock(*args, **kwargs)

    monkeypatch.setattr(tracing_compilation, "call_function", usual)
    return count


def check(calls: Calls, program: Any, *args: Any, usual: int = 0, **kwargs: Any) -> None:
    """Call a program as eager mode does, with `usual` calls by TensorFlow's way and no trace."""
    expected = program.python_function(*args, **kwargs)
    calls.usual, traces = 0, len(calls.traces)
    found = program(*args, **kwargs)
    assert (calls.usual, len(calls.traces)) == (usual, traces)
    tf.nest.map_structure(np.testing.assert_allclose, found, expected)


@pytest.fixture(name="program")
def _program(calls: Calls) -> Any:
    """One of a tensor that was called before, and that repeats that call."""
    program = jitted(calls.program)
    program(X)
    check(calls, program, X)
    return program


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((X,), (Y,)),
        ((X, Y), (Y, X)),
        ((X, Y, True, "word", None, 2.5), (Y, X, True, "word", None, 2.5)),
        (((X, [Y, 3]),), ((Y, [X, 3]),)),
        (({"b": X, "a": Y},), ({"a": X, "b": Y},)),
        (({"b": X, "a": {"c": Y}},), ({"b": Y, "a": {"c": X}},)),
        ((tf.constant(2), X[None]), (tf.constant(3), Y[None])),
        ((), ()),
    ],
)  # fmt: skip
def test_it_returns_what_the_function_returns(calls: Calls, first: Any, then: Any) -> None:
    program = jitted(calls.program)
    program(*first)
    for args in (first, then, first):
        check(calls, program, *args)


def test_arguments_by_name(calls: Calls) -> None:
    def scaled(x: Any, y: Any = None, *, factor: Any = 2, more: Any = None) -> Any:
        return calls.program(x, y, factor, more)

    program = jitted(scaled)
    for args, kwargs in (
        ((X,), {}),
        ((X,), {"y": Y}),
        ((X,), {"factor": 3}),
        ((X,), {"factor": Y, "more": tf.constant([7.0])}),
    ):
        program(*args, **kwargs)
        check(calls, program, *args, **kwargs)
        swapped = {name: v + 1 if isinstance(v, tf.Tensor) else v for name, v in kwargs.items()}
        check(calls, program, Y, **swapped)
    program(y=X, x=Y)
    check(calls, program, y=X, x=Y, usual=1)  # TensorFlow passes them in another order


def test_one_tensor_at_two_places_tells_no_order(calls: Calls) -> None:
    program = jitted(lambda x, y: calls.program(x, y))
    program(x=X, y=X)
    program(y=X, x=X)
    check(calls, program, y=X, x=Y, usual=1)
    check(calls, program, x=X, y=Y)
    program(X, X)
    check(calls, program, X, Y)


def test_arrays_are_copied(calls: Calls) -> None:
    program = jitted(lambda x, other: calls.program(*map(tf.identity, [x, *other])))
    array = np.array([1.0, 2.0, 3.0], np.float32)
    program(array, [Y])
    check(calls, program, array, [Y])
    check(calls, program, X, [Y.numpy()])
    array[0] = 7.0
    check(calls, program, array, [array])
    check(calls, program, array[::-1], [array[::-1]])
    strange = array.astype(">f4")
    check(calls, program, strange, [Y], usual=1)
    result = jitted(lambda x: (x, calls.program(x)))
    result(array)
    kept, _ = result(array)
    array[:] = 0.0
    np.testing.assert_array_equal(kept, [7.0, 2.0, 3.0])


def test_other_types_are_traced_as_ever(calls: Calls) -> None:
    program = jitted(calls.program)
    seen = [X, X[:2], tf.cast(X, tf.float64), tf.zeros([]), tf.zeros([0]), X[None]]
    for count, x in enumerate(seen):
        program(x)
        assert len(calls.traces) == count + 1
    for x in seen:
        check(calls, program, x)


def test_python_values_are_told_apart_by_type(calls: Calls) -> None:
    """TensorFlow takes True for 1; whatever it traces, the repeated call runs the same."""
    program = jitted(calls.program)
    for value in (1, True, 1.0, "1", b"1", None, (1, 2), [1, 2], 0.0, -0.0):
        expected = program(X, value)
        traces = len(calls.traces)
        assert program(X, value) == expected
        assert len(calls.traces) == traces


@pytest.mark.parametrize(
    "way", [{"input_signature": [tf.TensorSpec([None])]}, {"reduce_retracing": True}]
)
def test_sizes_of_one_trace(calls: Calls, way: dict[str, Any]) -> None:
    program = tf.function(calls.program, jit_compile=True, **way)
    for size in (1, 2, 3, 4, 5):
        program(tf.ones([size]))
    for size in (5, 1, 3, 5):
        check(calls, program, 2.0 * tf.ones([size]))


def test_more_kinds_of_calls_than_are_kept(calls: Calls) -> None:
    program = tf.function(calls.program, jit_compile=True, input_signature=[tf.TensorSpec([None])])
    for size in range(80):
        program(tf.ones([size]))
    check(calls, program, tf.ones([3]))
    check(calls, program, tf.ones([79]), usual=1)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "argument",
    [
        np.array(["a", "b"]), tf.Variable(X), Point(X, Y), tf.ragged.constant([[1.0], []]),
        np.float32(1), float("nan"), [tf.Variable(X)], {1: X},
    ],
)  # fmt: skip
def test_arguments_that_go_tensorflows_way(calls: Calls, argument: Any) -> None:
    def double(argument: Any) -> Any:
        leaves = map(tf.convert_to_tensor, tf.nest.flatten(argument, expand_composites=True))
        return calls.program(*(tf.cast(tf.size(leaf), tf.float32) for leaf in leaves))

    program = jitted(double)
    program(argument)
    program(argument)
    expected, calls.usual = double(argument), 0
    np.testing.assert_allclose(program(argument), expected)
    assert calls.usual == 1


def test_functions_that_hostcall_does_not_take_are_called_as_ever(calls: Calls) -> None:
    taken = jitted(calls.program)
    for function in (jitted(lambda x: x + 1.0), tf.function(calls.program)):
        function(X)
        for _ in range(4):
            taken(X)
            check(calls, function, X, usual=1)


@pytest.mark.parametrize("partitioned", [False, True])
def test_partitioned_functions_and_those_with_regions(calls: Calls, partitioned: bool) -> None:
    def words(x: tf.Tensor) -> Any:
        calls.traces.append(x)
        text = tf.strings.as_string(tf.cast(x, tf.int32))
        x = x + tf.cast(tf.strings.length(text), tf.float32)
        with hostcall.scope(route="partition") if partitioned else contextlib.nullcontext():
            return tf.numpy_function(np.sort, [x], tf.TensorSpec([3]))

    program = jitted(words)
    program(X)
    check(calls, program, 100.0 * Y)


def test_variables(calls: Calls) -> None:
    state = tf.Variable(1.0)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> Any:
        if not hasattr(program, "made"):
            program.made = tf.Variable(2.0)
        state.assign_add(1.0)
        return state + program.made + calls.program(x)

    assert program(X) == 10.0
    program(X)
    calls.usual = 0
    program.made.assign(100.0)
    assert program(Y) == 4.0 + 100.0 + 15.0
    assert calls.usual == 0


def test_values_that_are_captured_at_each_call(calls: Calls) -> None:
    value, spec = [1.0], tf.TensorSpec([])

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> Any:
        graph = tf.compat.v1.get_default_graph()
        return calls.program(x) + graph.capture_call_time_value(lambda: tf.constant(value[0]), spec)

    for value[0] in (1.0, 2.0, 3.0):
        assert program(X) == 6.0 + value[0]


def test_tapes_record_and_the_gradient_is_right() -> None:
    program = jitted(lambda x: tf.py_function(lambda v: v**3, [x], tf.TensorSpec([3])))
    for x in (X, Y, X):
        program(x)
        np.testing.assert_allclose(program(x), x**3)
        np.testing.assert_allclose(gradient_of(program, x), 3 * x**2, rtol=1e-6)
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            y = program(x)
        np.testing.assert_allclose(accumulator.jvp(y), 3 * x**2, rtol=1e-6)
    with tf.GradientTape() as tape:  # one that stops leaves the next call to TensorFlow
        tape.watch(X)
        with tape.stop_recording():
            np.testing.assert_allclose(program(X), X**3)
        y = program(X) + program(X)
    np.testing.assert_allclose(tape.gradient(y, X), 6 * X**2, rtol=1e-6)


def test_tapes_record_functions_without_callbacks(capfd: pytest.CaptureFixture[str]) -> None:
    def cubed(x: tf.Tensor) -> tf.Tensor:
        tf.print("cubed")
        return x**3

    program = jitted(cubed)
    for x in (X, Y, X):
        program(x)
        np.testing.assert_allclose(gradient_of(program, x), 3 * x**2, rtol=1e-6)
    assert capfd.readouterr().err.count("cubed") == 6


def test_variables_are_watched() -> None:
    state = tf.Variable(2.0)
    program = jitted(lambda x: state * tf.py_function(lambda v: v * v, [x], tf.TensorSpec([3])))
    program(X)
    program(X)
    with tf.GradientTape() as tape:
        y = program(X)
    assert [v.ref() for v in tape.watched_variables()] == [state.ref()]
    np.testing.assert_allclose(tape.gradient(y, state), tf.reduce_sum(X * X))


@pytest.mark.parametrize(
    "around",
    [
        lambda call: tf.function(call)(),
        lambda call: tf.function(call, jit_compile=True)(),
        lambda call: tf.distribute.OneDeviceStrategy("CPU:0").run(call),
    ],
    ids=["function", "compiled", "strategy"],
)
def test_calls_in_graphs_and_scopes_go_tensorflows_way(
    calls: Calls, program: Any, around: Any
) -> None:
    np.testing.assert_allclose(around(lambda: program(Y)), calls.program(Y))
    assert calls.usual > 0


def test_a_strategys_scope_traces_anew_as_without_hostcall(calls: Calls, program: Any) -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        np.testing.assert_allclose(program(Y), calls.program(Y))
    assert calls.usual == 1


def test_an_init_scope_in_a_trace(calls: Calls, program: Any) -> None:
    found = []

    @tf.function
    def outer() -> None:
        with tf.init_scope():
            found.append(program(Y))

    outer()
    np.testing.assert_allclose(found[0], calls.program(Y))


def test_functions_that_run_eagerly(calls: Calls, program: Any) -> None:
    before = len(calls.traces)
    tf.config.run_functions_eagerly(True)
    try:
        program(X)
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(calls.traces) == before + 1


def test_asynchronous_calls(calls: Calls, program: Any) -> None:
    tf.config.experimental.set_synchronous_execution(False)
    try:
        check(calls, program, Y, usual=1)
    finally:
        tf.config.experimental.set_synchronous_execution(True)
    check(calls, program, Y)


@pytest.mark.usefixtures("enabled_again")
def test_disable_takes_it_out(calls: Calls, program: Any) -> None:
    hostcall.disable()
    check(calls, program, X, usual=1)  # a program that is compiled already
    hostcall.enable()
    check(calls, program, Y)


def test_errors_are_those_of_the_first_call(calls: Calls) -> None:
    fail = [False]

    def maybe(x: np.ndarray) -> np.ndarray:
        return raising(KeyError("no such word"))(x) if fail[0] else x

    def added(x: tf.Tensor) -> Any:
        return tf.numpy_function(maybe, [x], tf.TensorSpec([3])) + 1.0

    program, other = jitted(added), jitted(added)
    program(X)
    fail[0] = True
    first, repeated = failure(other, X), failure(program, X)
    assert type(first) is type(repeated)
    assert "no such word" in repeated.message
    assert "test_repeated_calls.py" in str(repeated)
    assert isinstance(hostcall.last_error(), KeyError)
    fail[0] = False
    check(calls, program, Y)


def test_methods_of_objects_are_told_apart(calls: Calls) -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @tf.function(jit_compile=True)
        def step(self, x: tf.Tensor) -> Any:
            return self.factor * calls.program(x)

    models = [Model(1.0), Model(2.0)]
    for model in models:
        model.step(X)
    for model in models:
        check(calls, model.step, Y)


def test_copies_begin_anew(program: Any) -> None:
    np.testing.assert_allclose(copy.copy(program)(Y), program(Y))


def test_a_function_and_its_graph_end_as_ever() -> None:
    program = jitted(lambda x: tf.numpy_function(np.sort, [x], tf.TensorSpec([3])))
    for _ in range(3):
        program(X)
    fates = [Fate(program), Fate(program.get_concrete_function(X).graph)]
    del program
    for fate in fates:
        fate.assert_goes()


def test_many_threads(calls: Calls) -> None:
    program = jitted(calls.program)
    inputs = [tf.fill([1 + number % 3], float(number)) for number in range(24)]
    expected = [float(tf.reduce_sum(x)) for x in inputs]

    def run(number: int) -> None:
        found = [float(program(x)) for x in inputs[number:]]
        np.testing.assert_allclose(found, expected[number:])

    in_threads(8, run)


_JOINS_A_CLUSTER = """
import numpy as np, tensorflow as tf, hostcall
from tensorflow.core.protobuf import cluster_pb2, tensorflow_server_pb2
from tensorflow.python.eager import context
program = tf.function(lambda x: tf.numpy_function(np.sort, [x], tf.float32), jit_compile=True)
x = tf.constant([2.0, 1.0])
job = cluster_pb2.JobDef(name="worker", tasks={0: "localhost:0"})
context.context().enable_collective_ops(tensorflow_server_pb2.ServerDef(
    cluster=cluster_pb2.ClusterDef(job=[job]), job_name="worker", protocol="grpc"))
for _ in range(3):
    print(program(x).numpy())
"""


def test_a_tensor_from_before_the_process_joins_a_cluster(fresh_python: Template) -> None:
    ended = fresh_python.run_program(_JOINS_A_CLUSTER)
    assert (ended.status, ended.printed) == (0, "[1. 2.]\n" * 3), ended.said


def test_the_user_may_replace_the_arguments(program: Any) -> None:
    """A call keeps none of its tensors."""
    x = tf.constant([1.0, 2.0])
    program(x)
    program(x)
    fate = Fate(x)
    del x
    fate.assert_goes()

"""`hostcall.bind`: what bound functions take and return, and when they leave the short way."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tf import eager_execution
from hostcall_runtime import _library
from tests.support.fate import Fate
from tests.support.helpers import failure, gradient_of, raising, value_and_gradient
from tests.support.threads import in_threads

X = np.array([1.0, 2.0, 3.0], np.float32)
SPEC = tf.TensorSpec([3], tf.float32)


def add_one(x: np.ndarray) -> np.ndarray:
    return x + np.float32(1)


def program(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(add_one, [x], tf.TensorSpec(x.shape, x.dtype)) * 2.0


def cube(x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda v: v**3, [x], tf.TensorSpec(x.shape, x.dtype))


@pytest.fixture
def usual_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ConcreteFunctions that are called the usual way."""
    calls: list[Any] = []
    kind = type(tf.function(lambda: 0).get_concrete_function())
    call = kind.__call__
    monkeypatch.setattr(
        kind,
        "__call__",
        lambda self, *args, **named: [calls.append(self), call(self, *args, **named)][1],
    )
    return calls


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize(
    "fn",
    [
        program,
        tf.function(program),
        tf.function(program, jit_compile=True),
        tf.function(program, jit_compile=True, input_signature=[SPEC]),
        tf.function(program, jit_compile=True).get_concrete_function(SPEC),
    ],
    ids=["python", "graph", "jit", "signature", "concrete"],
)
def test_it_returns_what_the_function_returns(fn: Any, usual_calls: list[Any]) -> None:
    bound = hostcall.bind(fn, SPEC)
    for x in (X, tf.constant(X), X.tolist(), tf.Variable(X)):
        result = bound(x)
        assert isinstance(result, tf.Tensor)
        np.testing.assert_array_equal(result, (X + 1) * 2)
    assert not usual_calls


def test_specs_may_be_tensors_and_arrays_or_those_of_the_function() -> None:
    signed = tf.function(program, input_signature=[SPEC])
    expected = (X + 1) * 2
    for bound in (
        hostcall.bind(program, X),
        hostcall.bind(program, tf.constant(X)),
        hostcall.bind(program, tf.Variable(X)),
        hostcall.bind(signed),
        hostcall.bind(signed.get_concrete_function()),
    ):
        np.testing.assert_array_equal(bound(X), expected)
        (spec,) = bound.input_specs
        assert (spec.shape, spec.dtype) == (SPEC.shape, SPEC.dtype)
    assert isinstance(bound.concrete_function, tf.types.experimental.ConcreteFunction)
    assert repr(bound) == "<hostcall.Bound program(x: float32[3])>"


def test_sizes_that_vary_are_none_in_the_spec(usual_calls: list[Any]) -> None:
    bound = hostcall.bind(program, tf.TensorSpec([None], tf.float32))
    unknown = hostcall.bind(tf.function(program), tf.TensorSpec(None, tf.float32))
    for size in (3, 5, 0):
        np.testing.assert_array_equal(bound(np.zeros(size, np.float32)), np.full(size, 2.0))
        np.testing.assert_array_equal(unknown(tf.zeros([size, 1])), np.full([size, 1], 2.0))
    assert not usual_calls
    assert repr(bound) == "<hostcall.Bound program(x: float32[?])>"
    assert repr(unknown) == "<hostcall.Bound program(x: float32<unknown>)>"


def test_structures_go_in_and_come_out() -> None:
    def structured(batch: dict[str, Any], pair: Pair, *rest: Any) -> Any:
        total = program(batch["b"]) + batch["a"] + pair.first - pair.second[0] + sum(rest)
        return {"total": total, "all": [batch["a"], (total, None)]}, None

    args = ({"b": X, "a": X * 2}, Pair(X * 3, [X * 4]), X * 5, X * 6)
    bound = hostcall.bind(structured, *args)
    expected = tf.function(structured)(*tf.nest.map_structure(tf.constant, args))
    result = bound(*args)
    tf.nest.assert_same_structure(result, expected)
    tf.nest.map_structure(np.testing.assert_array_equal, result, expected)
    with pytest.raises(ValueError, match=r"batch\['a'\] of .* has shape \(2,\)"):
        bound({"b": X, "a": X[:2]}, *args[1:])
    with pytest.raises(TypeError, match="another structure"):
        bound({"b": X}, *args[1:])


def test_functions_without_arguments_or_results_run_for_their_effects() -> None:
    seen: list[int] = []

    def note() -> None:
        tf.numpy_function(lambda: seen.append(1), [], [])

    nothing = hostcall.bind(note)
    assert nothing() is nothing() is None
    assert seen == [1, 1]


def test_python_values_and_strings_are_taken_as_the_dtype_of_the_spec() -> None:
    def repeat(text: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.strings.reduce_join(tf.repeat(text, n))

    bound = hostcall.bind(repeat, tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int32))
    assert bound("ab", 2).numpy() == b"abab"
    assert bound(np.array("ab"), np.int32(3)).numpy() == b"ababab"


def test_deferred_captures_are_asked_for_in_each_call(usual_calls: list[Any]) -> None:
    value = [1.0]

    @tf.function(jit_compile=True)
    def scaled(x: tf.Tensor) -> tf.Tensor:
        graph = tf.compat.v1.get_default_graph()
        spec = tf.TensorSpec([], tf.float32)
        factor = graph.capture_call_time_value(lambda: tf.constant(value[0]), spec)
        return x * factor

    bound = hostcall.bind(scaled, SPEC)
    for value[0] in (2.0, 3.0):
        np.testing.assert_array_equal(bound(X), X * value[0])
    assert not usual_calls


def test_large_arrays_are_copied_into_memory_that_comes_back() -> None:
    runtime = _library.load("hostcall_runtime._runtime")
    x = np.arange(1 << 20, dtype=np.float32)
    bound = hostcall.bind(lambda v: v + 1.0, tf.TensorSpec(x.shape, x.dtype))
    bound(x)
    kept = runtime.kept_array_memory()
    assert kept >= x.nbytes
    for number in range(5):
        np.testing.assert_array_equal(bound(x + number), x + number + 1)
    assert runtime.kept_array_memory() == kept


@pytest.mark.parametrize("size", [1 << 16, 1 << 18])  # large and aligned enough to be shared
def test_tensors_of_large_arrays_have_memory_of_their_own(size: int) -> None:
    arrays = [np.full(size, number, np.float32) for number in range(5)]
    identity = hostcall.bind(tf.function(lambda v: tf.identity(v)), arrays[0])
    results = [identity(array) for array in arrays]
    views = [result.numpy() for result in results]
    for array in arrays:
        array[:] = -1
    del results
    identity(np.full(size, 9, np.float32))
    for number, view in enumerate(views):
        np.testing.assert_array_equal(view, np.full(size, number, np.float32))


DTYPES = [
    *("bool", "int8", "uint16", "int32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn"),
]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (70_000,)])
def test_arrays_of_any_dtype(name: str, shape: tuple[int, ...]) -> None:
    dtype = tf.as_dtype(name)
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype.as_numpy_dtype)
    result = hostcall.bind(tf.function(tf.identity), array)(array)
    assert result.dtype == dtype
    assert result.device == tf.constant(0.0).device
    np.testing.assert_array_equal(result.numpy(), array)


def test_arrays_that_lie_in_memory_in_any_way() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    shared = np.frombuffer(bytes(4 * 6 * 4 + 1), np.uint8)[1:].view(np.float32).reshape(4, 6)
    constant = whole.copy()
    constant.flags.writeable = False
    strided = [whole.T.copy().T, np.tile(whole, 2)[:, ::2], whole[::-1]]
    bound = hostcall.bind(tf.function(lambda x: x * 2.0), whole)
    for array in [whole, *strided, shared, constant, whole.astype(">f4")]:
        np.testing.assert_array_equal(bound(array), array * 2)


def test_arrays_where_tensors_go_to_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow makes the tensors, and puts them there."""
    monkeypatch.setattr(eager_execution, "has_cpus_alone", lambda: False)
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(hostcall.bind(tf.function(tf.identity), x)(x), x)


def test_threads_call_one_bound_function() -> None:
    bound = hostcall.bind(program, tf.TensorSpec([], tf.float32))
    found: dict[int, float] = {}

    def work(number: int) -> None:
        found[number] = sum(float(bound(np.array(number, np.float32))) for _ in range(20))

    in_threads(8, work)
    assert found == {number: 20 * (number + 1) * 2.0 for number in range(8)}


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function])
def test_errors_are_those_of_a_usual_call(op: Callable[..., Any]) -> None:
    error = KeyError("no signal")
    fn = tf.function(lambda x: op(raising(error), [x], SPEC), jit_compile=True)
    caught = [failure(call, tf.constant(X)) for call in (hostcall.bind(fn, SPEC), fn)]
    for one in caught:
        assert isinstance(one, tf.errors.UnknownError)
        assert hostcall.last_error(one) is error
    messages = [one.message.splitlines()[:4] for one in caught]
    assert messages[0] == messages[1]
    assert "no signal" in messages[0][0]


def test_ctrl_c_in_a_callback_is_a_keyboard_interrupt() -> None:
    interrupted = raising(KeyboardInterrupt())
    bound = hostcall.bind(lambda x: tf.numpy_function(interrupted, [x], SPEC), SPEC)
    with pytest.raises(KeyboardInterrupt):
        bound(X)


def test_partitioned_functions_are_bound_too() -> None:
    with hostcall.scope(route="partition"):
        bound = hostcall.bind(lambda x: program(tf.sin(x)) + 1.0, SPEC)
    np.testing.assert_allclose(bound(X), (np.sin(X) + 1) * 2 + 1, rtol=1e-6)
    unknown = hostcall.bind(lambda x: tf.numpy_function(np.unique, [x], tf.float32) + 1.0, SPEC)
    np.testing.assert_array_equal(unknown([2.0, 1.0, 2.0]), [2.0, 3.0])


def test_a_bound_function_keeps_alive_what_it_needs_and_dies_with_it() -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            self.weights = tf.Variable(X)

        @tf.function(jit_compile=True)
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return tf.numpy_function(lambda v: v + 1, [x * self.weights], SPEC)

    model = Model()
    bound = hostcall.bind(model.call, SPEC)
    del model
    gc.collect()
    np.testing.assert_array_equal(bound(X), X * X + 1)
    graph = Fate(bound.concrete_function.graph)
    del bound
    graph.assert_goes()


def test_functions_of_a_saved_model_are_bound(tmp_path: Path) -> None:
    module = tf.Module()
    module.weights = tf.Variable(X)
    module.call = tf.function(lambda x: x * module.weights + 1.0, [SPEC], jit_compile=True)
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    loaded = tf.saved_model.load(str(tmp_path))
    bound = hostcall.bind(loaded.call, SPEC)
    signature = loaded.signatures["serving_default"]
    by_name = hostcall.bind(lambda x: signature(x=x), SPEC)
    for _ in range(2):
        np.testing.assert_array_equal(bound(X), X * X + 1)
        np.testing.assert_array_equal(by_name(X)["output_0"], X * X + 1)
    with pytest.raises(TypeError, match="given by name"):
        hostcall.bind(signature, SPEC)


@pytest.mark.usefixtures("enabled_again")
def test_bound_functions_go_on_after_disable() -> None:
    bound = hostcall.bind(program, SPEC)
    bound(X)
    hostcall.disable()
    np.testing.assert_array_equal(bound(X), (X + 1) * 2)


@pytest.mark.parametrize("recorded", [False, True])
def test_wrong_arguments_are_named(recorded: bool) -> None:
    bound = hostcall.bind(lambda x, n: x * n, SPEC, tf.TensorSpec([], tf.float32))
    wide, tape = X.astype(np.float64), tf.GradientTape()
    with tape if recorded else tf.name_scope("none"):
        for value in (wide, tf.constant(wide), wide.astype(np.int32)):
            with pytest.raises(TypeError, match=r"Argument x of .* bound to float32"):
                bound(value, 1.0)
        with pytest.raises(TypeError, match=r"Argument n of .* dtype float64"):
            bound(X, np.float64(1))
        for value in (X[:2], tf.constant(X[:2]), [1.0]):
            with pytest.raises(ValueError, match=r"Argument x of .* bound to shape \(3,\)"):
                bound(value, 1.0)
        with pytest.raises(TypeError, match=r"Argument x of .* no tensor of float32\[3\]"):
            bound("text", 1.0)
        with pytest.raises(TypeError, match="takes 2 arguments and was called with 1"):
            bound(X)


@pytest.mark.parametrize("value", [1 << 40, -(1 << 31) - 1, [1 << 40]])
def test_integers_that_do_not_fit_are_refused(value: Any) -> None:
    shape = [len(value)] if isinstance(value, list) else []
    bound = hostcall.bind(lambda n: n, tf.TensorSpec(shape, tf.int32))
    with pytest.raises(TypeError, match=r"no tensor of int32.* int32 does not hold"):
        bound(value)


def test_what_cannot_be_bound_is_refused() -> None:
    with pytest.raises(TypeError, match="which is not a function"):
        hostcall.bind(3)
    with pytest.raises(TypeError, match=r"1\.5 as a spec"):
        hostcall.bind(program, 1.5)
    concrete = tf.function(program).get_concrete_function(SPEC)
    unknown, wide = tf.TensorSpec([None], tf.float32), tf.TensorSpec([3], tf.float64)
    for specs in ([unknown], [wide], [SPEC, SPEC], [{"x": SPEC}]):
        with pytest.raises(ValueError, match="program takes"):
            hostcall.bind(concrete, *specs)


# Calls that leave the short way.


@pytest.mark.parametrize("jit", [False, True])
def test_tapes_and_accumulators_record_bound_calls(jit: bool) -> None:
    bound = hostcall.bind(tf.function(cube, jit_compile=jit), SPEC)
    x, variable = tf.constant(X), tf.Variable(X)
    np.testing.assert_allclose(bound(x), X**3, rtol=1e-6)
    slope, second = value_and_gradient(lambda x: gradient_of(bound, x), x)
    np.testing.assert_allclose(slope, 3 * X**2, rtol=1e-6)
    np.testing.assert_allclose(second, 6 * X, rtol=1e-6)
    with tf.GradientTape() as tape:
        y = bound(variable)
    np.testing.assert_allclose(tape.gradient(y, variable), 3 * X**2, rtol=1e-6)
    polynomial = hostcall.bind(tf.function(lambda x: x**3, jit_compile=jit), SPEC)
    with tf.autodiff.ForwardAccumulator(x, tf.ones([3])) as accumulator:
        y = polynomial(x)
    np.testing.assert_allclose(accumulator.jvp(y), 3 * X**2, rtol=1e-6)
    np.testing.assert_allclose(bound(x), X**3, rtol=1e-6)


def test_tapes_inside_and_watched_variables_work() -> None:
    variable = tf.Variable(X)
    bound = hostcall.bind(lambda x: gradient_of(lambda x: cube(x) * variable, x), SPEC)
    for _ in range(2):
        np.testing.assert_allclose(bound(X), 3 * X**3, rtol=1e-6)
    with tf.GradientTape() as tape:
        bound(X)
    assert [v is variable for v in tape.watched_variables()] == [True]


def test_bound_calls_go_into_graphs() -> None:
    bound = hostcall.bind(program, tf.TensorSpec([None], tf.float32))
    for jit in (False, True):
        outer = tf.function(lambda x: bound(x) + bound([1.0]), jit_compile=jit)
        np.testing.assert_array_equal(outer(X), (X + 1) * 2 + 4)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(bound(tf.constant(X))), (X + 1) * 2)


def test_calls_in_init_scope_and_asynchronous_ones(usual_calls: list[Any]) -> None:
    bound = hostcall.bind(program, SPEC)
    bound(X)  # the first call of a process may be TensorFlow's
    usual_calls.clear()

    @tf.function
    def outer() -> tf.Tensor:
        with tf.init_scope():
            inside = bound(X)
        return inside + 0.0

    np.testing.assert_array_equal(outer(), (X + 1) * 2)
    assert len(usual_calls) == 1
    tf.config.experimental.set_synchronous_execution(False)
    try:
        np.testing.assert_array_equal(bound(X), (X + 1) * 2)
    finally:
        tf.config.experimental.set_synchronous_execution(True)
    assert len(usual_calls) == 2


def test_composite_tensors_take_the_usual_way() -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    bound = hostcall.bind(tf.function(lambda x: x * 2.0), ragged)
    assert bound(ragged).to_list() == [[2.0], [4.0, 6.0]]
    out = hostcall.bind(tf.function(tf.RaggedTensor.from_tensor), tf.TensorSpec([1, 2]))
    assert out(tf.ones([1, 2])).to_list() == [[1.0, 1.0]]

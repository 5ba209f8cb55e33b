"""hostcall.jax.to_tf: JAX functions with callbacks, JAX's own too, in TensorFlow programs."""

import functools
import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from jax import lax
from jax.experimental import io_callback, jax2tf

import hostcall.jax
from tests.support.fate import Fate
from tests.support.helpers import (
    DetailedError,
    assert_same,
    gradient_of,
    jitted,
    plain,
    raising,
    to_numpy,
)
from tests.support.jax.helpers import eagerly, plus_one, struct
from tests.support.versions import reads_programs_of_jax

pytestmark = reads_programs_of_jax

X = np.arange(4, dtype=np.float32)

to_tf = hostcall.jax.to_tf


each_mode = pytest.mark.parametrize("mode", [eagerly, plain, jitted])
in_graphs = pytest.mark.parametrize("mode", [plain, jitted])

KINDS: dict[str, Callable[..., Any]] = {
    "pure_callback": jax.pure_callback,
    "io_callback": io_callback,
    "ordered": functools.partial(io_callback, ordered=True),
}

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@jax.custom_jvp
def sin(x: Any) -> Any:
    return jax.pure_callback(lambda v: np.sin(np.asarray(v)), x, x, vmap_method="sequential")


@jax.custom_jvp
def cos(x: Any) -> Any:
    return hostcall.jax.call(np.cos, x, x, pure=True)


sin.defjvps(lambda tangent, result, x: tangent * cos(x))
cos.defjvps(lambda tangent, result, x: -tangent * sin(x))


@jax.custom_vjp
def tan(x: Any) -> Any:
    return hostcall.jax.call(np.tan, x, x)


tan.defvjp(lambda x: (tan(x), tan(x)), lambda kept, upstream: (upstream * (1 + kept * kept),))


@each_mode
def test_structures_and_results(mode: Any) -> None:
    def function(x: Any, more: Any, *, scale: Any) -> Any:
        n = hostcall.jax.call(lambda k: k + np.int32(1), more["k"], more["k"])
        return {"sin": sin(x) * scale, "rest": (n, [cos(x)])}

    called = mode(lambda x, k: to_tf(function)(x, {"k": k}, scale=2.0))(X, np.int32(3))
    expected = {"sin": np.sin(X) * 2, "rest": (np.int32(4), [np.cos(X)])}
    assert_same(called, expected)


@each_mode
def test_all_kinds_of_callbacks(mode: Any, capfd: Any) -> None:
    log: list[Any] = []

    def note(name: str) -> Callable[..., Any]:
        return lambda x: log.append((name, float(x)))

    def function(x: Any) -> Any:
        io_callback(note("io"), None, x[0], ordered=True)
        y = io_callback(lambda v: np.asarray(v) + 1, x, x)
        io_callback(note("io"), None, y[0], ordered=True)
        jax.debug.callback(note("debug"), x[2], ordered=True)
        jax.debug.print("x is {x}", x=x[3])
        hostcall.jax.call(note("call"), None, x[1])
        return y

    program = mode(to_tf(function))
    for _ in range(2):
        log.clear()
        assert_same(program(X), X + 1)
        assert [entry for entry in log if entry[0] == "io"] == [("io", 0.0), ("io", 1.0)]
        assert sorted(log)[:2] == [("call", 1.0), ("debug", 2.0)]
    assert capfd.readouterr().out == "x is 3.0\n" * 2


@each_mode
def test_gradients(mode: Any) -> None:
    converted = to_tf(lambda x, n: (sin(x) * n, n))
    upstream = mode(lambda x: gradient_of(lambda x: converted(x, 3)[0], x))(tf.constant(X))
    np.testing.assert_allclose(upstream, 3 * np.cos(X), rtol=1e-6)


@each_mode
def test_second_derivatives(mode: Any) -> None:
    converted = to_tf(sin)
    twice = mode(lambda x: gradient_of(lambda x: gradient_of(converted, x), x))(tf.constant(X))
    np.testing.assert_allclose(twice, -np.sin(X), rtol=1e-6, atol=1e-7)


@each_mode
def test_complex_gradients_are_tensorflows(mode: Any) -> None:
    z = tf.constant([1 + 2j, 3 - 1j], tf.complex64)
    ours = mode(lambda z: gradient_of(lambda z: tf.abs(to_tf(lambda z: z * z * 1j)(z)), z))(z)
    theirs = gradient_of(lambda z: tf.abs(z * z * 1j), z)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@each_mode
def test_side_effects_happen_once_with_gradients_too(mode: Any) -> None:
    log: list[float] = []

    def function(x: Any) -> Any:
        jax.debug.callback(lambda v: log.append(float(v)), x[1])
        return tan(x) * 2

    program = mode(lambda x: gradient_of(to_tf(function), x))
    np.testing.assert_allclose(program(tf.constant(X)), 2 * (1 + np.tan(X) ** 2), rtol=1e-5)
    assert log == [1.0]


@each_mode
@each_kind
def test_a_function_without_a_gradient(mode: Any, kind: Any) -> None:
    def function(x: Any) -> Any:
        return kind(lambda v: np.asarray(v) * 2, x, x)

    pure = kind is jax.pure_callback
    text = "Pure" if pure else "JAX has no gradient of it: IO"
    assert_same(mode(to_tf(function))(tf.constant(X)), X * 2)
    with pytest.raises(ValueError, match=f"{text} callbacks do not support"):
        mode(lambda x: gradient_of(to_tf(function), x))(tf.constant(X))


@each_mode
def test_side_effects_in_loops_happen_once_with_gradients_too(mode: Any) -> None:
    log: list[int] = []

    def note(i: Any) -> None:
        log.append(int(i))

    def function(x: Any, tell: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, x: [tell(i), jnp.sin(x)][1], x)

    ours = to_tf(lambda x: function(x, lambda i: hostcall.jax.call(note, None, i, ordered=True)))
    jaxs = to_tf(lambda x: function(x, lambda i: io_callback(note, None, i, ordered=True)))
    program = mode(lambda x: gradient_of(ours, x))
    expected = np.cos(X) * np.cos(np.sin(X)) * np.cos(np.sin(np.sin(X)))
    np.testing.assert_allclose(program(tf.constant(X)), expected, rtol=1e-5)
    assert log == [0, 1, 2]
    # JAX itself leaves these out of the gradient.
    np.testing.assert_allclose(mode(jaxs)(X), np.sin(np.sin(np.sin(X))), rtol=1e-6)
    assert log == [0, 1, 2] * 2
    with pytest.raises(ValueError, match=r"leaves out some calls .* Use hostcall.jax.call"):
        mode(lambda x: gradient_of(jaxs, x))(tf.constant(X))


def test_the_second_derivative_of_side_effects() -> None:
    def function(x: Any) -> Any:
        jax.debug.callback(lambda v: None, x)
        return jnp.sin(x)

    with pytest.raises(ValueError, match="second derivative is asked for, and it has side effects"):
        gradient_of(lambda x: gradient_of(to_tf(function), x), tf.constant(X))


@in_graphs
def test_a_batch_of_unknown_size(mode: Any) -> None:
    log: list[Any] = []

    def function(x: Any, w: Any) -> Any:
        io_callback(lambda v: log.append(v.shape), None, x, ordered=True)
        return sin(x) @ w, jnp.zeros(x.shape[0])

    converted = to_tf(function, polymorphic_shapes=["batch, ...", None])
    signature = [tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([4, 2], tf.float32)]
    program = tf.function(converted, input_signature=signature, jit_compile=mode is jitted)
    assert program.get_concrete_function().output_shapes[0].as_list() == [None, 2]
    w = np.ones([4, 2], np.float32)
    for size in (3, 5):
        x = np.stack([X * i for i in range(size)])
        y, zeros = program(x, w)
        np.testing.assert_allclose(y, np.sin(x) @ w, rtol=1e-5, atol=1e-6)
        assert zeros.shape == [size]
        assert log.pop() == (size, 4)


@in_graphs
def test_gradients_of_a_batch(mode: Any) -> None:
    for function in (sin, tan):
        converted = to_tf(function, polymorphic_shapes="batch, ...")
        program = tf.function(
            lambda x, converted=converted: gradient_of(converted, x),
            input_signature=[tf.TensorSpec([None], tf.float32)],
            jit_compile=mode is jitted,
        )
        expected = np.cos(X) if function is sin else 1 + np.tan(X) ** 2
        np.testing.assert_allclose(program(X), expected, rtol=1e-5)
        np.testing.assert_allclose(program(X[:2]), expected[:2], rtol=1e-5)


def test_a_size_that_has_no_name() -> None:
    program = tf.function(to_tf(sin), input_signature=[tf.TensorSpec([None], tf.float32)])
    with pytest.raises(ValueError, match=r'polymorphic_shapes="batch, \.\.\."'):
        program(X)


@each_mode
def test_exceptions(mode: Any) -> None:
    error = DetailedError("the reason")
    for function in (
        lambda x: jax.pure_callback(raising(error), x, x),
        lambda x: io_callback(raising(error), x, x, ordered=True),
        lambda x: hostcall.jax.call(raising(error), x, x),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="the reason") as caught:
            mode(to_tf(function))(X)
        assert hostcall.last_error(caught.value) is error


@each_mode
def test_wrong_results(mode: Any) -> None:
    converted = to_tf(lambda x: jax.pure_callback(lambda v: np.zeros(3, np.float32), x, x))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"has shape \(3,\)") as caught:
        mode(converted)(X)
    assert "jax.pure_callback of test_wrong_results" in str(caught.value)
    assert f"called at {__file__}" in str(caught.value)


@each_mode
def test_results_of_64_bits_are_narrowed_as_in_jax(mode: Any) -> None:
    def function(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.asarray(v, np.float64).sum(), x[0], x)

    assert_same(mode(to_tf(function))(X), np.float32(6))


@in_graphs
def test_values_and_errors_are_those_of_each_framework(mode: Any) -> None:
    """JAX's indices are moved into range, and those of TensorFlow raise errors."""
    taking = to_tf(lambda x, i: x[i] + hostcall.jax.call(plus_one, x, x))

    def function(x: Any, i: Any) -> Any:
        return taking(x, i), tf.gather(x, i // 2)

    function = mode(function)
    for _ in range(2):
        taken, gathered = function(X, 7)
        assert_same([taken.numpy(), gathered.numpy()], [X[3] + X + 1, X[3]])
        with pytest.raises(tf.errors.InvalidArgumentError, match="GatherV2"):
            function(X, 8)


def test_arguments() -> None:
    with pytest.raises(TypeError, match="wants a function, and not 3"):
        to_tf(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'text' is not a tensor that JAX has"):
        to_tf(sin)("text")
    with pytest.raises(ValueError, match="In JAX, call the JAX function itself"):
        jax.jit(to_tf(sin))(X)
    with pytest.raises(TypeError, match=r"is a tf\.function\. Call it itself in TensorFlow"):
        to_tf(tf.function(tf.sin))
    program = tf.function(to_tf(sin), input_signature=[tf.TensorSpec(None, tf.float32)])
    with pytest.raises(ValueError, match="not even the number of dimensions of an argument"):
        program(X)


def test_functions_live_as_long_as_the_programs() -> None:
    class Doubled:
        def __call__(self, x: Any) -> Any:
            return x * np.float32(2)

    function = Doubled()
    fate = Fate(function)
    program = jitted(to_tf(lambda x, f=function: hostcall.jax.call(f, x, x)))
    assert_same(program(X), X * 2)
    del function
    jax.clear_caches()
    gc.collect()
    assert_same(program(X), X * 2)
    assert fate.lives()
    del program
    jax.clear_caches()
    fate.assert_goes()


@each_mode
def test_variables_and_arrays_are_arguments_too(mode: Any) -> None:
    variable = tf.Variable(X)
    converted = to_tf(lambda x, y, n: sin(x) + y * n)
    assert_same(mode(lambda: converted(variable, np.ones(4), 2))(), np.sin(X) + np.float32(2))


def noting(call: Any, log: list[Any], name: Any) -> Callable[..., Any]:
    def program(x: Any) -> Any:
        call(lambda: log.append(name), None, ordered=True)
        return x + 1

    return to_tf(program)


@in_graphs
@pytest.mark.parametrize("call", [hostcall.jax.call, io_callback])
def test_the_order_of_a_tensorflow_program(mode: Any, call: Any) -> None:
    log: list[Any] = []
    note = functools.partial(noting, call)

    def program(x: Any) -> Any:
        for i in range(4):
            note(log, i)(x)
        tf.numpy_function(lambda: log.append("numpy_function"), [], [])
        _, y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, note(log, "loop")(y)), [0, x])
        y = tf.cond(x[0] > 9, lambda: x, lambda: note(log, "branch")(x))
        return y, jitted(note(log, "function"))(x), note(log, "end")(x)

    traced = mode(program)
    for _ in range(3):
        log.clear()
        traced(tf.constant(X))
        expected = [0, 1, 2, 3, "numpy_function", "loop", "loop", "branch", "function", "end"]
        assert log == expected


@in_graphs
def test_a_callback_reads_and_assigns_variables_of_the_program(mode: Any) -> None:
    variable = tf.Variable(1.0)

    def scale(x: Any) -> Any:
        return x * variable.assign_add(1.0).numpy()

    def program(x: Any) -> Any:
        return to_tf(lambda x: hostcall.jax.call(scale, x, x))(x * variable)

    np.testing.assert_array_equal(mode(program)(tf.constant(X)), 2 * X)
    assert variable.numpy() == 2


@in_graphs
def test_a_callback_has_tapes_of_its_own(mode: Any) -> None:
    def slope(x: Any) -> Any:
        return gradient_of(lambda x: x**3, tf.constant(np.asarray(x))).numpy()

    for convert in (
        lambda x: hostcall.jax.call(slope, x, x, pure=True),
        lambda x: jax.pure_callback(slope, x, x),
    ):
        program = mode(to_tf(convert))
        np.testing.assert_array_equal(program(tf.constant(X)), 3 * X * X)
        with tf.GradientTape() as tape:  # of the caller's, which sees nothing of it
            np.testing.assert_array_equal(program(tf.constant(X)), 3 * X * X)
        assert tape.watched_variables() == ()


def test_a_saved_model_is_refused(tmp_path: Any) -> None:
    module = tf.Module()
    specs = [tf.TensorSpec([4], tf.float32)]
    module.run = tf.function(noting(hostcall.jax.call, [], "saved"), input_signature=specs)
    with pytest.raises(ValueError, match="A SavedModel holds no Python code"):
        tf.saved_model.save(module, str(tmp_path))
    module.run = tf.function(to_tf(lambda x: x * 2), input_signature=specs)
    tf.saved_model.save(module, str(tmp_path))
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).run(X), 2 * X)


def test_jaxs_own_converter_names_ours() -> None:
    program = jax.jit(lambda x: hostcall.jax.call(np.sin, x, x, pure=True))
    with pytest.raises(hostcall.NotExportableError, match=r"call hostcall\.jax\.to_tf\(program\)"):
        jax2tf.convert(program)(np.ones(3, np.float32))
    np.testing.assert_allclose(to_tf(program)(np.ones(3, np.float32)), np.sin(np.ones(3)), 1e-6)


class Pair(NamedTuple):
    low: Any
    high: Any


def named_pair(x: Any) -> Pair:
    return Pair(np.asarray(x), 2 * np.asarray(x))


@in_graphs
@pytest.mark.parametrize(
    "way", [jax.pure_callback, functools.partial(hostcall.jax.call, pure=True)]
)
def test_containers_of_results_may_differ(way: Any, mode: Any) -> None:
    x = struct([4])
    for result in ((x, x), [x, x], {"a": x, "b": (x,)}):
        got = mode(to_tf(lambda v, result=result: way(named_pair, result, v)))(X)
        assert jax.tree.structure(got) == jax.tree.structure(result)
        for one, expected in zip(jax.tree.leaves(got), (X, 2 * X), strict=True):
            np.testing.assert_array_equal(one, expected)


@in_graphs
def test_fire_and_forget_calls(mode: Any) -> None:
    seen: list[Any] = []

    def program(x: Any) -> Any:
        def log(name: str, value: Any) -> None:
            hostcall.jax.call(
                lambda *given: seen.append(given), (), name, value, wait=False, ordered=True
            )

        def block(x: Any) -> Any:
            log("block", x.sum())
            return jax.vmap(lambda v: [log("element", v), jnp.sin(v)][1])(x)

        return jax.checkpoint(block)(x).sum()

    converted = mode(to_tf(program))
    converted(X)
    hostcall.barrier()
    expected = [("block", np.sum(X)), *(("element", value) for value in np.asarray(X))]
    assert seen == expected
    seen.clear()
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = converted(x)
    np.testing.assert_allclose(tape.gradient(result, x), np.cos(X), rtol=1e-6)
    hostcall.barrier()
    assert seen == 2 * expected  # once more for the gradient, as in JAX


@in_graphs
def test_a_gradient_that_needs_nothing_of_an_argument_but_its_size(mode: Any) -> None:
    log: list[int] = []

    def program(x: Any) -> Any:
        hostcall.jax.call(lambda v: log.append(len(v)), None, jax.lax.stop_gradient(x))
        return x.sum() * 2

    converted = to_tf(program, polymorphic_shapes="batch")
    slope = mode(lambda x: gradient_of(converted, x))
    np.testing.assert_array_equal(slope(tf.constant(X)), [2, 2, 2, 2])
    assert log == [4]


def structures(kind: Any, x: Any) -> Any:
    def nested(pair: Any) -> Any:
        assert isinstance(pair[0], jax.Array)
        return {"y": [plus_one(pair[0])], "empty": np.zeros([2, 0], np.int32)}

    declared = {"y": [x], "empty": struct([2, 0], np.int32)}
    return kind(nested, declared, [x, jnp.zeros([0, 3])])


def loops(kind: Any, x: Any) -> Any:
    x = lax.while_loop(lambda x: x[0] < 3, lambda x: kind(plus_one, x, x), x)
    x = lax.fori_loop(0, 3, lambda _, x: kind(plus_one, x, x), x)
    x, rows = lax.scan(lambda c, v: (kind(np.add, c, c, v), v), x, jnp.stack([x, x]))
    return x, rows, lax.map(lambda v: kind(plus_one, v, v), x)


def conditions(kind: Any, x: Any) -> Any:
    def below(v: Any) -> Any:
        return np.any(np.asarray(v) < 7)

    x = lax.while_loop(
        lambda x: kind(below, struct([], bool), x), lambda x: kind(plus_one, x, x), x
    )
    return lax.cond(kind(below, struct([], bool), x), lambda x: -x, lambda x: x, x)


def branches(kind: Any, x: Any) -> Any:
    def adding(n: int) -> Any:
        return lambda x: kind(lambda v: np.asarray(v) + np.float32(n), x, x)

    x = lax.switch(x[1].astype(int), [adding(1), adding(2), adding(3)], x)
    return lax.cond(x[0] > 9, adding(10), jax.jit(adding(20)), x)


def axes(kind: Any, x: Any) -> Any:
    # Only what JAX has of it for its own.
    if kind is KINDS["ordered"]:
        return x
    methods: Any = [{}]
    if kind is jax.pure_callback:
        methods = [{"vmap_method": name} for name in ("sequential", "expand_dims", "broadcast_all")]
    rows = jnp.stack([x, x + 1])
    return [jax.vmap(lambda r, m=m: kind(plus_one, r, r, **m), 1, 1)(rows) for m in methods]


def small_dtypes(kind: Any, x: Any) -> Any:
    results = []
    for dtype in (ml_dtypes.int2, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16):
        y = (x % 2).astype(dtype)
        results.append(kind(lambda v: np.asarray(v)[::-1], y, y).astype(np.float32))
    return results


def computing_with_jax(kind: Any, x: Any) -> Any:
    inner = jax.jit(lambda v: jnp.tanh(v @ v).sum())
    large = jnp.ones([200, 200]) * x[1]
    return kind(lambda v: np.asarray(inner(v)), struct([]), large)


@each_kind
@pytest.mark.parametrize(
    "program",
    [structures, loops, conditions, branches, axes, small_dtypes, computing_with_jax],
    ids=lambda program: program.__name__,
)
def test_values_are_those_of_jax(kind: Any, program: Any) -> None:
    function = functools.partial(program, kind)
    expected = jax.tree.map(np.asarray, jax.jit(function)(X))
    assert_same(jitted(to_tf(function))(tf.constant(X)), expected)


FOUR_BITS = [ml_dtypes.int4, ml_dtypes.uint4]


@pytest.mark.cpu("TensorFlow copies no integers of four bits to other devices")
@pytest.mark.parametrize("mode", [eagerly, plain])
@pytest.mark.parametrize("dtype", FOUR_BITS)
def test_integers_of_four_bits(mode: Any, dtype: Any) -> None:
    def function(x: Any, *, rest: Any) -> Any:
        flipped = jax.pure_callback(lambda v: np.asarray(v)[::-1], x, x)
        io_callback(lambda _: None, None, x, ordered=True)
        return {"x": x, "flipped": (flipped, flipped.astype(jnp.int32))}, rest[0].astype(x.dtype)

    x = np.array([1, 2, 3, -4, 5, 6, 7], np.int8).astype(dtype)
    rest = np.arange(3, dtype=np.int8)
    called = mode(lambda x, rest: to_tf(function)(x, rest=[rest, 1.5]))(x, rest)
    results = {"x": x, "flipped": (x[::-1], x[::-1].astype(np.int32))}
    assert_same(to_numpy(called), (results, rest.astype(dtype)))


@pytest.mark.cpu("TensorFlow copies no integers of four bits to other devices")
@each_mode
@pytest.mark.parametrize("effects", [False, True])
def test_gradients_beside_integers_of_four_bits(mode: Any, effects: bool) -> None:
    def function(x: Any, small: Any) -> Any:
        seen = hostcall.jax.call(lambda v: v[::-1], small, small, pure=not effects)
        return x * x * seen.astype(x.dtype)

    small = tf.constant(np.array([1, -2, 3], np.int8).astype(ml_dtypes.int4))
    x = tf.constant([1.0, 2.0, 3.0])
    slope = mode(lambda x: gradient_of(lambda x: to_tf(function)(x, small), x))(x)
    assert_same(slope.numpy(), np.array([6.0, -8.0, 6.0], np.float32))


@pytest.mark.tensorflow("2.21", "TensorFlow has them from then on")
@each_mode
@pytest.mark.parametrize("name", ["int2", "uint2", "float4_e2m1fn"])
def test_other_values_of_less_than_a_byte_are_errors(mode: Any, name: str) -> None:
    x = tf.constant(np.zeros(2).astype(name))
    with pytest.raises(TypeError, match=rf"argument \['y'\]\[1\] is of dtype {name}") as caught:
        mode(lambda: to_tf(lambda y: y)(y=[1.0, x]))()
    assert f"x.astype(jnp.{name})" in str(caught.value)
    with pytest.raises(TypeError, match=rf"result \['r'\] is of dtype {name}"):
        mode(lambda: to_tf(lambda x: {"r": x.astype(name)})(1.0))()


def of_rows(x: Any) -> Any:
    jax.vmap(lambda v: jax.debug.print("row {v}", v=v))(x)
    return x


def of_scans(x: Any) -> Any:
    def step(carry: Any, v: Any) -> Any:
        jax.debug.print("{c} and {v:.2f}", c=carry, v=v, ordered=True)
        return carry + 1, v

    return lax.scan(step, 0, x)


def of_conditions(x: Any) -> Any:
    def below(i: Any) -> Any:
        jax.debug.print("below {i}", i=i, ordered=True)
        return i < 2

    return lax.while_loop(below, lambda i: i + 1, x[0].astype(int))


def of_derivatives(x: Any) -> Any:
    @jax.custom_vjp
    def told(x: Any) -> Any:
        return x

    told.defvjp(
        lambda x: (x, None),
        lambda _, upstream: [jax.debug.print("upstream {u}", u=upstream), (upstream,)][1],
    )

    def program(x: Any) -> Any:
        jax.debug.print("x {x}", x=x)
        return told(x) ** 2

    return jax.grad(jax.checkpoint(program))(x[2])


def of_formats(x: Any) -> Any:
    with np.printoptions(precision=2, suppress=True):
        jax.debug.print("{}", x / 3)
    jax.debug.print("{a}: {b} {c}", a={"x": x[1]}, b=x.dtype, c=jax.random.key(1))
    jax.debug.callback(lambda v, **rest: print(v, rest), x[0], y=x[1])  # noqa: T201
    return x


@in_graphs
@pytest.mark.parametrize(
    "program",
    [of_rows, of_scans, of_conditions, of_derivatives, of_formats],
    ids=lambda program: program.__name__,
)
def test_lines_are_those_of_jax(mode: Any, program: Any, capfd: Any) -> None:
    jax.jit(program)(X)
    jax.effects_barrier()
    expected = capfd.readouterr().out
    assert expected
    mode(to_tf(program))(tf.constant(X))
    lines = capfd.readouterr().out
    if program in (of_scans, of_conditions):
        assert lines == expected
    assert sorted(lines.splitlines()) == sorted(expected.splitlines())


@in_graphs
@pytest.mark.parametrize("ordered", [True, False])
def test_calls_of_ours_in_the_condition_of_a_loop(mode: Any, ordered: bool) -> None:
    log: list[int] = []

    def program(x: Any) -> Any:
        def below(carry: Any) -> Any:
            hostcall.jax.call(lambda i: log.append(int(i)), None, carry[0], ordered=ordered)
            return carry[0] < 2

        return lax.while_loop(below, lambda carry: (carry[0] + 1, carry[1] + 1), (0, x))[1]

    np.testing.assert_array_equal(mode(to_tf(program))(tf.constant(X)), X + 2)
    assert log == [0, 1, 2]


@in_graphs
def test_pure_callbacks_are_dropped_and_others_are_not(mode: Any) -> None:
    calls: list[str] = []

    def note(name: str) -> Any:
        return lambda v: [calls.append(name), v][1]

    def program(x: Any) -> Any:
        for name, kind in KINDS.items():
            kind(note(name), x, x)
        return x

    mode(to_tf(program))(X)
    assert sorted(calls) == ["io_callback", "ordered"]


@each_kind
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: X, "takes 0 positional arguments but 1 was given"),
        (lambda v: (v, v), "2 values|structure"),
        (lambda v: np.float32(0), r"shape \(\)"),
        (lambda v: np.zeros(4, np.int32), "int32"),
    ],
    ids=["arguments", "count", "shape", "dtype"],
)
def test_wrong_functions(kind: Any, function: Any, text: str) -> None:
    program = jitted(to_tf(lambda x: kind(function, x, x)))
    with pytest.raises(tf.errors.OpError, match=text):
        program(X)


@each_kind
def test_functions_that_arrays_are_reduced_by(kind: Any) -> None:
    add = lambda a, b: kind(np.add, a, a, b)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"callback: .* jax\.lax\.reduce, of which XLA"):
        to_tf(lambda x: lax.reduce(x, 0.0, add, (0,)))(X)

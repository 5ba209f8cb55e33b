"""hostcall.jax.call: arguments and results, waiting, statistics."""

import threading
from typing import Any, Self

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax._src import dispatch
from jax.experimental import io_callback, sparse

import hostcall.jax
from hostcall_runtime import _library
from tests.support.jax.flavours import each_flavour
from tests.support.jax.helpers import X, assert_same, each_mode, struct
from tests.support.threads import PATIENCE

call = hostcall.jax.call


@each_mode
def test_what_the_function_is_given(mode: Any) -> None:
    seen: list[Any] = []

    def note(*args: Any) -> None:
        args[0][:] = -1  # its own
        seen.extend(args)

    mode(lambda x: [call(note, None, x, 3, {"a": x[0]}), x][1])(X)
    jax.effects_barrier()
    array, number, nested = seen
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [-1, -1, -1, -1]
    assert number == 3
    assert nested == {"a": 0}
    np.testing.assert_array_equal(X, np.arange(4))


@each_mode
def test_a_rule_for_the_result(mode: Any) -> None:
    def outer(x: Any, y: Any) -> Any:
        return struct([*x.shape, *y["y"].shape], x.dtype)

    program = mode(lambda x, y: call(lambda x, y: np.outer(x, y["y"]), outer, x, {"y": y}))
    np.testing.assert_array_equal(program(X, X[:3]), np.outer(X, X[:3]))


# With the dtypes of ml_dtypes that XLA computes with on CPUs.
DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32),
    *(np.float16, np.float32, np.complex64, ml_dtypes.bfloat16),
    *(ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn),
    *(ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e8m0fnu),
    *(ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
]


def values_of(dtype: Any) -> Any:
    """All finite values of a dtype of eight bits or fewer, and some of another one."""
    if np.dtype(dtype).itemsize > 1:
        return np.arange(5).astype(dtype)
    name = np.dtype(dtype).name
    if "float" not in name:
        return np.arange(-128, 256).astype(dtype)
    values = np.arange(16 if "float4" in name else 256, dtype=np.uint8).view(dtype)
    return values[np.isfinite(values.astype(np.float32))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: Any) -> None:
    values, seen = values_of(dtype), []

    def turned(v: Any) -> Any:
        seen.append(v.copy())
        return v[::-1]

    def program(x: Any) -> Any:
        return call(turned, x, x), call(lambda: values, struct(values.shape, dtype))

    x = jnp.asarray(values)
    both, alone = jax.jit(program)(x), call(turned, x, x)
    for given in seen:
        assert_same(given, values)
    for result, expected in zip([*both, alone], (values[::-1], values, values[::-1]), strict=True):
        assert result.dtype == dtype
        assert_same(np.asarray(result).astype(np.complex64), expected.astype(np.complex64))
    assert len(seen) == 2


def test_64_bits() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray([1, 2**40])
        assert_same(np.asarray(call(lambda v: v + 1, x, x)), np.array([2, 2**40 + 1]))


@each_mode
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (2, 3, 4)])
def test_shapes(mode: Any, shape: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).random(shape, np.float32))
    assert_same(np.asarray(mode(lambda x: call(np.cos, x, x))(x)), np.cos(np.asarray(x)))


def test_pure_calls_are_dropped_and_others_are_not() -> None:
    calls = []

    def note(x: Any) -> Any:
        calls.append(x)
        return x

    @jax.jit
    def program(x: Any) -> Any:
        call(note, x, x, pure=True)
        return x + 1

    program(X).block_until_ready()
    assert calls == []

    @jax.jit
    def with_effects(x: Any) -> Any:
        for _ in range(3):
            call(note, x, x)
        call(note, x, x, ordered=True)
        return x + 1

    with_effects(X)
    jax.effects_barrier()
    assert len(calls) == 4


def test_equal_pure_calls_are_made_as_often_as_those_of_jax() -> None:
    calls = []

    def note(x: Any) -> Any:
        calls.append(x)
        return x

    def made(one: Any) -> int:
        calls.clear()
        jax.block_until_ready(jax.jit(lambda x: (one(x), one(x)))(X))
        return len(calls)

    # XLA makes one of two equal calls of jax.experimental.buffer_callback.
    assert made(lambda x: jax.pure_callback(note, x, x)) == 2
    assert made(lambda x: call(note, x, x, pure=True)) == 2


def test_eager_calls_of_one_line_share_a_program() -> None:
    def twice(v: Any) -> Any:
        return v * np.float32(2)

    values = []
    counts = []
    for i in range(4):
        values.append(call(twice, X, X + i))
        counts.append(_library.load("hostcall_runtime._runtime").size())
    assert len(set(counts)) == 1
    np.testing.assert_array_equal(values[3], 2 * (X + 3))


@pytest.mark.parametrize("how", [{}, {"pure": True}, {"ordered": True}], ids=str)
def test_an_eager_call_with_an_array_of_numpys_compiles_one_program(how: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    dispatch.xla_primitive_callable.cache_clear()
    for _ in range(2):
        assert_same(np.asarray(call(np.cos, x, x, **how)), np.cos(x))
    assert dispatch.xla_primitive_callable.cache_info().misses == 1


@pytest.mark.usefixtures("collected_stats")
def test_the_name_is_in_the_statistics() -> None:
    program = jax.jit(lambda x: call(np.cos, x, x, name="my cosine"))
    program(X).block_until_ready()
    (row,) = (row for row in hostcall.stats() if "of my cosine, cos" in row.callback)
    assert (row.calls, row.errors, row.bytes) == (1, 0, 2 * 4 * 4)


def test_programs_hand_over_calls_that_nobody_waits_for() -> None:
    may_go_on, seen = threading.Event(), []

    def hold(x: Any) -> None:
        assert may_go_on.wait(PATIENCE)
        seen.append(x)

    def note(named: Any) -> Any:
        seen.append(named["total"])
        return "thrown away"

    @jax.jit
    def program(x: Any) -> Any:
        call(hold, None, x, wait=False, ordered=True)
        call(note, (), {"total": x.sum()}, wait=False, ordered=True, queue=5)
        return x + 1

    np.testing.assert_array_equal(program(program(X)), X + 2)
    call(note, None, {"total": X[0]}, wait=False)
    callback = hostcall.callback(note, result=[], wait=False)
    jax.jit(lambda x: [callback({"total": x}), x][1])(X[1]).block_until_ready()
    may_go_on.set()
    hostcall.barrier()
    expected = [X, X.sum(), X + 1, (X + 1).sum(), X[0], X[1]]
    for one, other in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_barrier_waits_for_programs_that_run_in_the_background() -> None:
    seen = []

    @jax.jit
    def program(x: Any) -> Any:
        for _ in range(20):
            x = jnp.sin(x)
        call(lambda v: seen.append(v.shape), None, x, wait=False)
        return x

    program(jnp.ones(1_000_000))
    hostcall.barrier()
    assert seen == [(1_000_000,)]


def test_errors_of_calls_that_nobody_waits_for() -> None:
    def fails(x: Any) -> None:
        raise KeyError(float(x))

    program = jax.jit(lambda x: call(fails, None, x, wait=False))
    program(1.0)
    with pytest.raises(KeyError, match=r"1\.0"):
        hostcall.barrier()
    for options, message in (
        ({"wait": False, "result": X}, "without results"),
        ({"wait": False, "pure": True}, "does nothing but return results"),
        ({"wait": False, "queue": -1}, "not a positive number"),
        ({"queue": 1}, "is for calls that no program waits for"),
    ):
        with pytest.raises(ValueError, match=message):
            call(fails, options.pop("result", None), X, **options)


@jax.tree_util.register_pytree_node_class
class Layer:
    """One that can be called, as those of Equinox and of Flax."""

    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, x: Any) -> Any:
        return self.w @ x

    def tree_flatten(self) -> Any:
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Self:
        return cls(*children)


LAYER = Layer(jnp.arange(6.0).reshape(2, 3))
SPARSE = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))


def specs_of(tree: Any) -> Any:
    return jax.eval_shape(lambda tree: tree, tree)


def doubled(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: 2 * np.asarray(leaf), tree)


CALLS: dict[str, Any] = {
    "call": lambda tree: hostcall.jax.call(doubled, specs_of(tree), tree),
    "callback": lambda tree: hostcall.callback(doubled, result=specs_of(tree))(tree),
    "keyword": lambda tree: hostcall.callback(lambda tree: doubled(tree), result=specs_of(tree))(
        tree=tree
    ),
    "function": lambda tree: hostcall.jax.call(doubled, lambda tree: specs_of(tree), tree),
}
TREES = {"layer": LAYER, "sparse": SPARSE, "nested": {"a": [LAYER, SPARSE], "b": X}}


@pytest.mark.pairwise
@each_mode
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", TREES)
def test_the_leaves_are_the_results(mode: Any, call: str, name: str) -> None:
    tree = TREES[name]
    assert_same(mode(CALLS[call])(tree), io_callback(doubled, specs_of(tree), tree))


@each_mode
def test_a_partial_is_a_function_unless_it_holds_specs(mode: Any) -> None:
    of_rank = jax.tree_util.Partial(lambda rank, x: struct(x.shape[:rank], x.dtype), 1)
    bare = jax.tree_util.Partial(lambda x: struct(x.shape, x.dtype))
    for result in (of_rank, bare):
        program = mode(lambda x, r=result: hostcall.jax.call(doubled, r, x))
        assert_same(program(X), 2 * X)
    scaling = jax.tree_util.Partial(jnp.multiply, X)
    assert_same(mode(CALLS["call"])(scaling), doubled(scaling))


class Wrapped:
    """An array of somebody else's, which NumPy can read."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.int4, ml_dtypes.float4_e2m1fn])
@pytest.mark.parametrize("order", ["C", "F"])
def test_results_of_either_order(dtype: Any, order: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    program = jax.jit(lambda x: call(lambda v: np.asarray(v, order=order), x, x))
    assert_same(np.asarray(program(values)).astype(int), values.astype(int))
    strided = jax.jit(lambda x: call(lambda v: np.repeat(v, 2, axis=1)[:, ::2], x, x))
    assert_same(np.asarray(strided(values)).astype(int), values.astype(int))


@each_flavour
def test_arguments_that_xla_has_transposed(flavour: Any) -> None:
    seen = []

    def note(v: Any) -> Any:
        seen.append((v.flags.c_contiguous, v.tolist()))
        return v

    rows = jnp.arange(6.0).reshape(2, 3)
    program = jax.jit(lambda x: flavour(note, struct([3, 2]), x.T).T)
    np.testing.assert_array_equal(program(rows), rows)
    assert seen == [(True, rows.T.tolist())]


@each_flavour
def test_several_results_of_which_some_are_empty(flavour: Any) -> None:
    declared = (struct([2, 0]), struct([4]), struct([3, 0], np.int32), struct([8]))

    def many(x: Any, empty: Any) -> Any:
        assert empty.shape == (0, 5)
        return np.ones([2, 0], np.float32), x, np.ones([3, 0], np.int32), np.concatenate([x, x])

    results = jax.jit(lambda x, e: flavour(many, declared, x, e))(X, jnp.zeros([0, 5]))
    assert [(y.shape, y.dtype) for y in results] == [(y.shape, y.dtype) for y in declared]
    np.testing.assert_array_equal(results[1], X)
    np.testing.assert_array_equal(results[3], np.concatenate([X, X]))


@each_flavour
def test_one_array_as_argument_and_as_several_results(flavour: Any) -> None:
    program = jax.jit(lambda x: flavour(lambda v: (v, v, v[::-1]), (x, x, x), x))
    first, second, third = program(X)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X)
    np.testing.assert_array_equal(third, X[::-1])


def test_structures_with_none() -> None:
    def nested(pair: Any) -> Any:
        assert pair[1] is None
        return {"y": [pair[0]], "none": None}

    called = jax.jit(lambda x: call(nested, {"y": [x], "none": None}, [x, None]))(X)
    assert called["none"] is None
    np.testing.assert_array_equal(called["y"][0], X)


@each_mode
@pytest.mark.parametrize("make", [jnp.asarray, Wrapped], ids=["jax", "other"])
def test_arrays_of_other_libraries_are_results(mode: Any, make: Any) -> None:
    program = mode(lambda x: call(lambda v: make(v + np.float32(1)), x, x))
    np.testing.assert_array_equal(program(X), X + 1)


def test_weak_types_end_at_the_call() -> None:
    y = call(lambda v: v, struct([]), 3.0)
    assert not y.weak_type
    assert (y + jnp.bfloat16(1)).dtype == np.float32


def test_a_hundred_arguments_and_results() -> None:
    numbers = [jnp.float32(i) for i in range(100)]
    program = jax.jit(lambda *args: call(lambda *v: [x * 2 for x in v], list(args), *args))
    assert [float(y) for y in program(*numbers)] == [2.0 * i for i in range(100)]

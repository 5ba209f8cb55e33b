"""hostcall.jax.call: values, structures, transformations."""

import threading
from typing import Any, Self

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import io_callback, sparse

import hostcall.jax
from hostcall_runtime import _library
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
@pytest.mark.parametrize("returned", [(1, 2), [1, 2]], ids=["tuple", "list"])
def test_lists_and_tuples_are_alike(mode: Any, returned: Any) -> None:
    integers = type(returned)(np.int32(n) for n in returned)
    for declared in ((struct([], np.int32),) * 2, [struct([], np.int32)] * 2):
        called = mode(lambda declared=declared: call(lambda: integers, declared))()
        assert type(called) is type(declared)
        assert [int(value) for value in called] == [1, 2]


@each_mode
def test_a_rule_for_the_result(mode: Any) -> None:
    def outer(x: Any, y: Any) -> Any:
        return struct([*x.shape, *y["y"].shape], x.dtype)

    program = mode(lambda x, y: call(lambda x, y: np.outer(x, y["y"]), outer, x, {"y": y}))
    np.testing.assert_array_equal(program(X, X[:3]), np.outer(X, X[:3]))


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32),
        *(np.float16, np.float32, np.complex64),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    ],
)
@each_mode
def test_dtypes(mode: Any, dtype: Any) -> None:
    values = np.arange(5).astype(dtype)
    seen = []

    def turned(v: Any) -> Any:
        seen.append(v.dtype)
        return v[::-1]

    result = mode(lambda x: call(turned, x, x))(jnp.asarray(values))
    assert seen == [np.dtype(dtype)]
    assert_same(np.asarray(result), values[::-1])


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


def test_the_name_is_in_the_statistics() -> None:
    hostcall.collect_stats()
    program = jax.jit(lambda x: call(np.cos, x, x, name="my cosine"))
    try:
        program(X).block_until_ready()
        (row,) = (row for row in hostcall.stats(reset=True) if "of my cosine, cos" in row.callback)
    finally:
        hostcall.collect_stats(False)
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
        ({"wait": False, "queue": -1}, "no positive number"),
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

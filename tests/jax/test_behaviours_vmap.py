"""Tests that our callbacks keep the promises of JAX's own under `jax.vmap`."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.jax.flavours import Log, each_effect, each_flavour
from tests.support.jax.helpers import X, each_mode, failure, noting_shapes, struct

call = hostcall.jax.call

METHODS = ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"]
each_method = pytest.mark.parametrize("method", METHODS)


def add(x: Any, y: Any) -> Any:
    return x + y


@pytest.mark.pairwise
@each_mode
@each_method
@pytest.mark.parametrize(
    ("in_axes", "out_axes"), [((0, None), 0), ((0, 0), 0), ((1, 1), 1), ((None, 1), 0), ((0, 1), 1)]
)
def test_axes(mode: Any, method: str, in_axes: Any, out_axes: int) -> None:
    x = jnp.arange(9.0).reshape(3, 3)
    y = 10 * x

    def program(x: Any, y: Any) -> Any:
        # Lone rows broadcast against batches of them.
        return call(add, y, x, y, vmap_method=method)

    rows = [v if axis is not None else v[0] for v, axis in zip((x, y), in_axes, strict=True)]
    expected = jax.vmap(add, in_axes, out_axes)(*rows)
    np.testing.assert_array_equal(mode(jax.vmap(program, in_axes, out_axes))(*rows), expected)


@each_mode
def test_an_effect_happens_for_each_element_where_nothing_is_said(mode: Any) -> None:
    seen: list[float] = []

    def note(x: Any, y: Any) -> Any:
        seen.append(float(x))
        return x + y

    program = jax.vmap(lambda x, y: call(note, x, x, y) * 2, in_axes=(0, None))
    np.testing.assert_array_equal(mode(program)(X, np.float32(1)), (X + 1) * 2)
    assert sorted(seen) == [float(x) for x in X]
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(mode(jax.vmap(program))(rows, X[:2]), (rows + X[:2, None]) * 2)
    assert len(seen) == 4 + 6


@each_method
def test_one_vmap_in_another(method: str) -> None:
    noted, shapes = noting_shapes(add)

    def program(x: Any, y: Any) -> Any:
        return call(noted, struct([]), x, y, vmap_method=method)

    inner = jax.vmap(program, in_axes=(0, None))
    both = jax.vmap(inner, in_axes=(None, 0))(jnp.arange(2.0), jnp.arange(3.0))
    np.testing.assert_array_equal(both, [[0, 1], [1, 2], [2, 3]])
    if method.startswith("sequential"):
        assert shapes == [((), ())] * 6
    else:
        assert shapes == [((3, 2),) * 2 if method == "broadcast_all" else ((1, 2), (3, 1))]


def test_the_old_way_gives_a_lone_argument_as_it_is() -> None:
    noted, shapes = noting_shapes(add)

    program = jax.vmap(
        lambda x, y: call(noted, x, x, y, vmap_method="legacy_vectorized"),
        in_axes=(1, None),
        out_axes=1,
    )
    np.testing.assert_array_equal(program(X[None], 4.0), X[None] + 4)
    assert shapes == [((4, 1), ())]


@each_mode
def test_a_vectorized_function_that_returns_the_shape_of_one_element(mode: Any) -> None:
    program = mode(jax.vmap(lambda x: call(np.sum, x, x, vmap_method="expand_dims")))
    assert r"shape (), but its declared shape is (4,)" in str(failure(program, X))


@pytest.mark.cpu("XLA slices no packed dtypes on a GPU")
@each_method
def test_batches_of_nothing_and_of_packed_dtypes(method: str) -> None:
    program = jax.vmap(lambda x: call(lambda v: v[..., ::-1], x, x, vmap_method=method))
    assert program(jnp.zeros([0, 3])).shape == (0, 3)
    x = jnp.arange(6).reshape(2, 3).astype(ml_dtypes.int4)
    np.testing.assert_array_equal(np.asarray(program(x)).astype(int), [[2, 1, 0], [5, 4, 3]])


@each_flavour
def test_what_does_not_depend_on_the_batch_runs_once(flavour: Any) -> None:
    calls: list[Any] = []

    def noted() -> Any:
        calls.append(1)
        return np.float32(7)

    program = jax.jit(jax.vmap(lambda x: x + flavour(noted, struct([]))))
    np.testing.assert_array_equal(program(X), X + 7)
    jax.effects_barrier()
    assert calls == [1]


def test_a_rule_of_the_users() -> None:
    @jax.custom_batching.custom_vmap
    def function(x: Any) -> Any:
        return call(lambda v: v + 1, x, x)

    @function.def_vmap
    def of_batch(size: int, batched: Any, x: Any) -> Any:
        return call(lambda v: v + size, x, x), batched[0]

    np.testing.assert_array_equal(jax.vmap(function)(X), X + 4)
    np.testing.assert_array_equal(function(X), X + 1)


@each_mode
@each_effect
def test_branches_that_only_some_elements_take(mode: Any, flavour: Any) -> None:
    def branch(x: Any) -> Any:
        return lax.cond(x > 1, lambda x: [flavour(lambda: None, None), x][1], lambda x: x, x)

    def switch(x: Any) -> Any:
        nested = jax.jit(lambda x: lax.scan(lambda c, _: (branch(c), None), x, length=2)[0])
        return lax.switch(1, [lambda x: x, nested], x)

    for program in (branch, switch):
        with pytest.raises(NotImplementedError, match=r"vmap of a branch .* jax\.lax\.map"):
            mode(jax.vmap(program))(X)
        with pytest.raises(NotImplementedError, match=r"vmap of a branch"):
            jax.make_jaxpr(jax.vmap(jax.grad(program)))(X)


@each_mode
@each_effect
def test_loops_that_elements_leave_at_different_times(mode: Any, flavour: Any) -> None:
    def counted(x: Any) -> Any:
        body = lambda x: [flavour(lambda: None, None), x + 1][1]  # noqa: E731
        return lax.while_loop(lambda x: x < 3, body, x)

    def in_the_condition(x: Any) -> Any:
        below = lambda x: [flavour(lambda: None, None), x < 3][1]  # noqa: E731
        return lax.while_loop(below, lambda x: x + 1, x)

    def batched_only_by_the_third_turn(x: Any) -> Any:
        def body(carry: Any) -> Any:
            flavour(lambda: None, None)
            return carry[1], carry[2], x

        return lax.while_loop(lambda carry: carry[0] < 3, body, (0.0, 0.0, 0.0))

    for program in (counted, in_the_condition, batched_only_by_the_third_turn):
        with pytest.raises(NotImplementedError, match=r"vmap of a loop .* jax\.lax\.map"):
            mode(jax.vmap(program))(X)


@each_mode
def test_branches_and_loops_that_all_elements_go_through_alike(mode: Any) -> None:
    log: list[float] = []

    def note(v: Any) -> Any:
        log.append(float(v))
        return v + 1

    def noted(x: Any) -> Any:
        return call(note, x, x, vmap_method="sequential")

    def program(x: Any, flag: Any) -> Any:
        x = lax.cond(flag, noted, lambda x: x, x)
        return lax.fori_loop(0, 2, lambda _, x: noted(x), x)

    batch = mode(jax.vmap(program, in_axes=(0, None)))
    np.testing.assert_array_equal(batch(X, True), X + 3)
    jax.effects_barrier()
    assert sorted(log) == sorted(x + n for x in X.tolist() for n in range(3))


@each_mode
def test_pure_calls_go_all_ways(mode: Any) -> None:
    def tenfold(x: Any) -> Any:
        return call(lambda v: v * 10, x, x, pure=True, vmap_method="broadcast_all")

    by_object = hostcall.callback(lambda v: v * 10, result=lambda v: v, stateful=False)
    for scaled in (tenfold, by_object):
        program = lambda x, f=scaled: lax.cond(x > 1, f, lambda x: x, x)  # noqa: E731
        np.testing.assert_array_equal(mode(jax.vmap(program))(X), [0, 1, 20, 30])
        loop = lambda x, f=scaled: lax.while_loop(lambda x: x < 9, f, x + 1)  # noqa: E731
        np.testing.assert_array_equal(mode(jax.vmap(loop))(X), [10, 20, 30, 40])


@each_effect
def test_map_takes_the_place_of_vmap(flavour: Any) -> None:
    log = Log()

    def program(x: Any) -> Any:
        return lax.cond(x > 1, lambda x: [log(flavour, x), x][1], lambda x: x, x)

    np.testing.assert_array_equal(lax.map(program, X), X)
    assert log.take() == [2, 3]

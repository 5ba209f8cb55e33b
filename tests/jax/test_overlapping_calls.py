"""Concurrent pure calls begin early and are waited for late, in compiled JAX programs.

Their functions wait for one another, so that a program whose calls do not overlap fails. Calls run
one at a time where nobody lets them overlap, in large programs too, which have as many and as large
values as XLA wants for its own threads.
"""

import concurrent.futures
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from hostcall_runtime import prepared
from tests.support.jax.helpers import X, failure
from tests.support.threads import PATIENCE, Alone, meeting

pytestmark = pytest.mark.cpu("on a GPU XLA waits for each call")
W = jnp.arange(16, dtype=jnp.float32).reshape(4, 4)


def pure(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    how.setdefault("concurrent", "executor" not in how)
    return lambda x: hostcall.jax.call(function, x, x, pure=True, **how)


def callback(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    return hostcall.callback(function, result=lambda x: x, stateful=False, concurrent=True, **how)


def batched(function: Callable[..., Any]) -> Callable[..., Any]:
    one = pure(function, vmap_method="expand_dims")
    return lambda x: jax.vmap(one)(x[:, None])[:, 0]


WAYS: dict[str, Callable[..., Any]] = {
    "call": pure,
    "callback": callback,
    "callback with a gradient": lambda f: callback(f, grad=lambda _, results, upstream: upstream),
    "call in a jitted function": lambda f: jax.jit(pure(f)),
    "call under vmap": batched,
    "call on an executor": lambda f: pure(f, executor=concurrent.futures.ThreadPoolExecutor(8)),
}


def compiled(function: Callable[..., Any], *args: Any) -> str:
    """Return the text of the program that XLA runs."""
    return str(jax.jit(function).lower(*args).compile().as_text())


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert prepared().count_early_calls() == 0


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_independent_calls_overlap(way: Any) -> None:
    meet = way(meeting(8))
    program = jax.jit(lambda x: sum(meet(x + i) for i in range(8)))
    for _ in range(3):
        np.testing.assert_array_equal(program(X), 16 * X + 56)


def test_calls_on_an_executors_only_thread_run_there() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        double = pure(lambda x: x + x, executor=pool)
        inner = jax.jit(lambda x: double(x) - double(x + 1)).lower(X).compile()
        outer = pure(lambda x: np.asarray(inner(x)), executor=pool)
        np.testing.assert_array_equal(jax.jit(outer)(X), X * 0 - 2)


def test_calls_of_a_batch_overlap() -> None:
    meet = pure(meeting(4), vmap_method="sequential_unrolled")
    np.testing.assert_array_equal(jax.jit(jax.vmap(meet))(X), 2 * X)


def test_calls_in_loops_and_branches_overlap() -> None:
    meet, other = pure(meeting(2)), pure(meeting(2))

    @jax.jit
    def program(x: Any, choice: Any) -> Any:
        x = jax.lax.scan(lambda c, _: (meet(c) - meet(0.5 * c), None), x, None, length=5)[0]
        x = jax.lax.fori_loop(0, 3, lambda _, c: meet(c) - meet(0.5 * c), x)
        return jax.lax.cond(choice, lambda x: other(x) + other(x + 1), lambda x: x, x)

    np.testing.assert_array_equal(program(X * 0 + 3, False), X * 0 + 3)
    np.testing.assert_array_equal(program(X * 0 + 3, True), 4 * (X * 0 + 3) + 2)


def test_a_level_of_calls_waits_for_the_one_before_it() -> None:
    first, second = pure(meeting(3)), pure(meeting(2))

    @jax.jit
    def program(x: Any) -> Any:
        a, b, c = first(x), first(x + 1), first(x + 2)
        return second(a + b) + second(c)

    np.testing.assert_array_equal(program(X), 12 * X + 12)


@pytest.mark.parametrize(("ordered", "has_result"), [(True, False), (True, True), (False, True)])
def test_a_call_goes_on_beside_calls_with_side_effects(ordered: bool, has_result: bool) -> None:
    told = threading.Event()

    def wait(x: Any) -> Any:
        assert told.wait(PATIENCE)
        return x

    def tell(x: Any) -> Any:
        told.set()
        return x if has_result else None

    @jax.jit
    def program(x: Any) -> Any:
        waited = pure(wait)(x)
        hostcall.jax.call(tell, x if has_result else None, x, ordered=ordered)
        return waited

    np.testing.assert_array_equal(program(X), X)


def test_a_call_is_waited_for_after_a_product() -> None:
    text = compiled(lambda x, w: (pure(np.sort)(x), w @ w), X, W)
    (gate,) = re.findall(r'custom-call\(([^()]*)\), custom_call_target="hostcall_gate"', text)
    assert len(gate.split(", ")) == 2
    assert "dot" in gate


def test_side_effects_keep_their_order_and_number() -> None:
    order: list[str] = []

    def note(tag: str, x: Any, **how: Any) -> Any:
        return hostcall.jax.call(lambda v: (order.append(tag), v)[1], x, x, **how)

    meet = pure(meeting(2))

    @jax.jit
    def program(x: Any) -> Any:
        y = note("a", meet(x), ordered=True)
        note("?", x)
        z = note("b", x, ordered=True)
        w = note("c", meet(x + 1), ordered=True)
        return y, z, w, note("d", x, ordered=True)

    for count in (1, 2):
        jax.block_until_ready(program(X))
        assert [tag for tag in order if tag != "?"] == list("abcd") * count
        assert order.count("?") == count


def test_gradients_overlap() -> None:
    meet = meeting(2)
    square = callback(lambda x: x * x, grad=lambda x, _, upstream: callback(meet)(x[0]) * upstream)

    @jax.jit
    @jax.grad
    def gradient(x: Any) -> Any:
        return jnp.sum(square(x) + square(x + 1))

    np.testing.assert_array_equal(gradient(X), 2 * X + 2 * (X + 1))


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "int4", "complex64", "int8", "float8_e5m2"])
def test_dtypes_are_kept(dtype: str) -> None:
    dtypes = []
    same = pure(lambda x: (dtypes.append(x.dtype), x)[1])
    x = jnp.array([1, 0, 3], dtype)
    results = jax.jit(lambda x: [same(x), same(x[:0]), same(x[::-1])])(x)
    for got, given in zip(results, (x, x[:0], x[::-1]), strict=True):
        np.testing.assert_array_equal(got, given)
    assert dtypes == [x.dtype] * 3


@pytest.mark.parametrize("fails", [0, 7])
def test_an_error_is_that_of_its_call(fails: int) -> None:
    meet = meeting(8)
    wrong = [True]

    def call(i: int) -> Any:
        def number(x: Any) -> Any:
            meet(x)
            if wrong[0] and i == fails:
                raise KeyError(f"of call {i}")
            return x

        return pure(number)

    calls = [call(i) for i in range(8)]
    program = jax.jit(lambda x: sum(one(x) for one in calls))
    for _ in range(3):
        error = failure(program, X)
        assert f"of call {fails}" in str(error)
        assert isinstance(hostcall.last_error(error), KeyError)
        assert prepared().count_early_calls() == 0
    wrong[0] = False
    np.testing.assert_array_equal(program(X), 8 * X)


def test_a_nested_program_has_calls_that_overlap() -> None:
    meet = pure(meeting(4))
    # Compiled before, since JAX makes the first calls of a jitted function one after another.
    inner = jax.jit(lambda x: meet(x) + meet(x + 1)).lower(X).compile()
    outer = pure(lambda x: np.asarray(inner(x)))
    np.testing.assert_array_equal(jax.jit(lambda x: outer(x) + outer(x + 2))(X), 8 * X + 12)


def test_what_a_loop_does_not_change_is_called_once() -> None:
    calls: list[Any] = []
    note = pure(lambda x: (calls.append(x), x)[1])

    @jax.jit
    def program(x: Any, y: Any) -> Any:
        return jax.lax.scan(lambda c, _: (c + note(y) + note(y + 1), None), x, None, length=5)[0]

    np.testing.assert_array_equal(program(X, X), 11 * X + 5)
    assert len(calls) == 2


def test_what_nobody_uses_is_not_called() -> None:
    calls: list[float] = []
    note = pure(lambda x: (calls.append(float(x[1])), x)[1])
    both = jax.jit(lambda x: (note(x), note(x + 10)))
    jax.block_until_ready(jax.jit(lambda x: (both(x)[0], note(x + 1)))(X))
    assert sorted(calls) == [1, 2]


@pytest.mark.parametrize("how", [{"borrow": True}, {"out": True}, {"memo": True}])
def test_calls_that_need_the_memory_of_the_program_are_left_alone(how: dict[str, Any]) -> None:
    double = callback(lambda x, out=None: np.add(x, x, out=out), **how)
    assert "hostcall_start" not in compiled(lambda x: double(x) + double(x + 1), X)
    np.testing.assert_array_equal(jax.jit(lambda x: double(x) + double(x + 1))(X), 4 * X + 2)


def test_a_lone_call_is_one_call() -> None:
    assert "hostcall_start" not in compiled(lambda x: pure(np.sort)(x) + 1, X)
    assert "hostcall_start" not in compiled(lambda x: pure(np.sort)(pure(np.sort)(x)), X)


def test_what_jax_shows_has_calls_as_they_are() -> None:
    program = jax.jit(lambda x: pure(np.sort)(x) + pure(np.sort)(-x))
    lowered = program.lower(X)
    before = lowered.as_text()
    assert "hostcall_start" in lowered.compile().as_text()
    assert lowered.as_text() == before
    assert "hostcall_start" not in before


@pytest.mark.usefixtures("enabled_again")
def test_disabled_calls_do_not_overlap() -> None:
    program = jax.jit(lambda x: pure(np.sort)(x) + pure(np.sort)(-x))
    hostcall.disable()
    assert "hostcall_start" not in program.lower(X).compile().as_text()
    np.testing.assert_array_equal(program(X), np.sort(X) + np.sort(-X))


LARGE = jnp.arange(100_000, dtype=jnp.float32)
CALLS = 12


each_way = pytest.mark.parametrize(
    "way",
    [
        lambda f: pure(f, concurrent=False),
        lambda f: lambda x: hostcall.jax.call(f, x, x),
        lambda f: hostcall.callback(f, result=lambda x: x, stateful=False),
    ],
    ids=["pure", "effect", "callback"],
)
each_size = pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])


def several(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [call(x + i) for i in range(CALLS)]


def in_loops(call: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Any) -> Any:
        step = lambda c, i: (c + call(x * i), None)  # noqa: E731
        y = jax.lax.scan(step, x, jnp.arange(8, dtype=x.dtype))[0]
        return [y, *[call(x - i) for i in range(4)]]

    return program


@each_size
@each_way
@pytest.mark.parametrize("program", [several, in_loops])
def test_calls_do_not_overlap(program: Any, way: Any, x: Any) -> None:
    alone = Alone()
    function = jax.jit(program(way(alone)))
    for _ in range(3):
        jax.block_until_ready(function(x))
    assert (alone.overlaps, alone.calls) == (0, 3 * CALLS)


def test_what_has_an_order_or_is_not_waited_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"concurrent=True .* pure=True"):
        hostcall.jax.call(np.sin, X, X, ordered=True, concurrent=True)
    with pytest.raises(ValueError, match="concurrent=True lets calls overlap"):
        hostcall.jax.call(np.sin, None, X, wait=False, concurrent=True)

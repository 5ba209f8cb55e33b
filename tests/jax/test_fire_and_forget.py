"""hostcall.jax.call with wait=False: wherever `jax.debug.callback` works, and as often."""

import functools
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback

import hostcall
import hostcall.jax
from tests.support.jax.helpers import X, assert_same, each_mode, eagerly
from tests.support.threads import PATIENCE

Log = Callable[..., None]
Program = Callable[[Log, Any], Any]

SCALAR = jnp.float32(0.5)
POLICIES = jax.checkpoint_policies


def jaxs(note: Any, *args: Any, ordered: bool) -> None:
    jax.debug.callback(note, *args, ordered=ordered)


def ours(note: Any, *args: Any, ordered: bool) -> None:
    hostcall.jax.call(note, (), *args, ordered=ordered, wait=False)


def seen_and_returned(call: Any, mode: Any, program: Program, x: Any, ordered: bool) -> Any:
    """Return what a program's calls have seen, sorted unless ordered, and what it returns."""
    seen: list[Any] = []

    def note(*args: Any) -> None:
        seen.append(repr(jax.tree.map(lambda a: a if is_no_array(a) else np.asarray(a), args)))

    def log(*args: Any) -> None:
        call(note, *args, ordered=ordered)

    returned = jax.block_until_ready(mode(lambda x: program(log, x))(x))
    jax.effects_barrier()
    hostcall.barrier()
    return seen if ordered else sorted(seen), returned


def is_no_array(value: object) -> bool:
    return not isinstance(value, jax.Array | np.ndarray | np.generic | int | float)


each_order = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


def check(program: Program, x: Any, mode: Any, ordered: bool) -> Any:
    expected, expected_result = seen_and_returned(jaxs, mode, program, x, ordered)
    seen, result = seen_and_returned(ours, mode, program, x, ordered)
    assert seen == expected
    assert_same(result, expected_result)
    return seen


def block(log: Log, x: Any) -> Any:
    y = jnp.sin(x)
    log(y)
    z = jnp.sin(y)
    log(z, x)
    return z * y


def beside(log: Log, x: Any) -> Any:
    log(x)
    return jnp.sin(x)


def taken_above(log: Log, x: Any) -> Any:
    return lax.cond(x > 0.5, lambda: [log(x), x][1], lambda: -x)


def switched(log: Log, x: Any) -> Any:
    branches = [lambda x, i=i: [log(i, x), i * x][1] for i in range(3)]
    return lax.switch(x.astype(int), branches, x)


def until_three(log: Log, x: Any) -> Any:
    return lax.while_loop(lambda c: c < 3, lambda c: [log(c), c + 1][1], x)


def asked(log: Log, x: Any) -> Any:
    return lax.while_loop(lambda c: [log(c), c < 3][1], lambda c: c + 1, x)


def three_times(log: Log, x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: [log(i, c), jnp.sin(c)][1], x)


def scanned(log: Log, x: Any) -> Any:
    return lax.scan(lambda c, i: ([log(c), jnp.sin(c) * i][1], c), x, jnp.arange(1.0, 3.0))[0]


def layers(log: Log, x: Any) -> Any:
    layer = jax.checkpoint(lambda c, w: (block(log, c * w), None))
    return lax.scan(layer, x, jnp.arange(1.0, 4.0))[0]


@jax.custom_vjp
def backwards(x: Any) -> Any:
    return x * x


backwards.defvjp(lambda x: (x * x, x), lambda x, upstream: (2 * x * upstream,))


def beside_a_rule(log: Log, x: Any) -> Any:
    return beside(log, backwards(x))


def in_a_rule(log: Log, x: Any) -> Any:
    @jax.custom_jvp
    def function(x: Any) -> Any:
        return x * x

    function.defjvp(lambda p, t: ([log(*p), p[0] ** 2][1], 2 * p[0] * t[0]))
    return function(x)


def nested(log: Log, x: Any) -> Any:
    return jax.jit(functools.partial(block, log))(x) + jax.jit(functools.partial(beside, log))(x)


PROGRAMS: dict[str, Program] = {
    name.__name__: name
    for name in (
        *(block, beside, taken_above, switched, until_three, three_times, scanned, layers),
        *(beside_a_rule, in_a_rule, nested),
    )
}


def rematerialized(program: Program, **options: Any) -> Program:
    return lambda log, x: jax.checkpoint(functools.partial(program, log), **options)(x)


def batched(program: Program) -> Program:
    return lambda log, x: jax.vmap(functools.partial(program, log))(x * jnp.arange(4.0))


def differentiated(program: Program) -> Program:
    return lambda log, x: jax.grad(lambda x: jnp.sum(program(log, x)))(x)


def pushed_forward(program: Program) -> Program:
    return lambda log, x: jax.jvp(functools.partial(program, log), (x,), (x,))


# JAX has no reverse derivative of a loop of unknown length, and no forward one by a `custom_vjp`.
FORWARD_ONLY, REVERSE_ONLY = "until_three", "beside_a_rule"

each_program = pytest.mark.parametrize("name", PROGRAMS)


@each_order
@each_program
def test_plain(name: str, ordered: bool) -> None:
    assert check(PROGRAMS[name], SCALAR, jax.jit, ordered) or name in ("in_a_rule", "taken_above")


@pytest.mark.parametrize("name", ["block", "taken_above", "until_three"])
@pytest.mark.parametrize("change", [lambda f: f, lambda f: batched(f), lambda f: rematerialized(f)])
def test_without_jit(change: Any, name: str) -> None:
    check(change(PROGRAMS[name]), SCALAR, eagerly, ordered=False)


@each_order
@each_program
def test_in_derivatives(name: str, ordered: bool) -> None:
    program = PROGRAMS[name]
    if name != REVERSE_ONLY:
        check(pushed_forward(program), SCALAR, jax.jit, ordered)
    if name != FORWARD_ONLY:
        check(differentiated(program), SCALAR, jax.jit, ordered)


@each_order
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != FORWARD_ONLY])
def test_rematerialized(name: str, ordered: bool) -> None:
    check(differentiated(rematerialized(PROGRAMS[name])), SCALAR, jax.jit, ordered)


@pytest.mark.parametrize("name", ["block", "layers"])
@pytest.mark.parametrize(
    "policy",
    [
        POLICIES.everything_saveable,
        POLICIES.dots_saveable,
        POLICIES.offload_dot_with_no_batch_dims("device", "pinned_host"),
    ],
)
def test_policies_of_rematerialization(policy: Any, name: str) -> None:
    program = rematerialized(PROGRAMS[name], policy=policy)
    check(differentiated(program), SCALAR, jax.jit, ordered=True)


def test_a_value_that_the_policy_saves() -> None:
    def program(log: Log, x: Any) -> Any:
        y = checkpoint_name(jnp.sin(x), "saved")
        log(y)
        return jnp.sin(y) * y

    for names in (["saved"], ["other"], []):
        policy = POLICIES.save_only_these_names(*names)
        check(differentiated(rematerialized(program, policy=policy)), SCALAR, jax.jit, ordered=True)


def test_rematerialization_within_rematerialization() -> None:
    inner = rematerialized(block)
    program = rematerialized(lambda log, x: inner(log, inner(log, x)))
    check(differentiated(program), SCALAR, jax.jit, ordered=True)


@each_program
def test_in_batches(name: str) -> None:
    check(batched(PROGRAMS[name]), SCALAR, jax.jit, ordered=False)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["block", "taken_above", "layers"])
@pytest.mark.parametrize(
    "change",
    [
        lambda f: batched(differentiated(f)),
        lambda f: differentiated(batched(f)),
        lambda f: batched(rematerialized(differentiated(f))),
        lambda f: batched(differentiated(rematerialized(f))),
        lambda f: differentiated(rematerialized(batched(f))),
    ],
)
def test_in_batches_of_derivatives(change: Any, name: str) -> None:
    check(change(PROGRAMS[name]), SCALAR, jax.jit, ordered=False)


@each_mode
def test_ordered_calls_of_a_batch_follow_its_elements(mode: Any) -> None:
    seen = check(batched(beside), SCALAR, mode, ordered=True)
    assert [float(re.findall(r"[.\d]+", text)[0]) for text in seen] == [0.0, 0.5, 1.0, 1.5]
    check(batched(block), SCALAR, mode, ordered=True)
    check(batched(taken_above), SCALAR, mode, ordered=True)


def test_ordered_calls_that_are_waited_for_follow_the_elements_too() -> None:
    seen: list[float] = []

    def note(v: Any) -> None:
        seen.append(float(v))

    jax.block_until_ready(
        jax.jit(jax.vmap(lambda x: [hostcall.jax.call(note, None, x, ordered=True), x][1]))(X)
    )
    hostcall.jax.call(note, None, X[0], ordered=True)
    in_both = hostcall.callback(note, result=[])
    jax.jit(jax.vmap(lambda x: [in_both(x), x][1]))(X)
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3, 0, 0, 1, 2, 3]


@each_mode
def test_axes_of_batches(mode: Any) -> None:
    def program(log: Log, x: Any) -> Any:
        of_two = jax.vmap(lambda a, b, c: [log(a, b, c), a + b][1], in_axes=(0, None, 1))
        twice = jax.vmap(of_two, in_axes=(1, 0, None), axis_size=3)
        return twice(x, x[0], {"c": x})

    check(program, jnp.arange(9.0).reshape(3, 3), mode, ordered=False)


@each_order
@pytest.mark.parametrize("kind", [jnp.float32, jnp.int8])
def test_calls_in_the_condition_of_a_batch(kind: Any, ordered: bool) -> None:
    def program(log: Log, x: Any) -> Any:
        return jax.vmap(functools.partial(asked, log))(x), asked(log, x[0])

    x = jnp.array([0, 2, 5], kind)
    seen, result = seen_and_returned(ours, jax.jit, program, x, ordered)
    # JAX calls more often if the calls are unordered, and computes [3, 5, 8] if they are ordered.
    assert_same(result, (jnp.array([3, 3, 5], kind), kind(3)))
    of_batch = [0, 2, 5, 1, 3, 5, 2, 3, 5, 3, 3, 5]
    found = [int(float(re.findall(r"[.\d]+", text)[0])) for text in seen]
    assert found == [*of_batch, 0, 1, 2, 3] if ordered else found == sorted([*of_batch, 0, 1, 2, 3])


def test_a_batch_of_keys_and_of_batches_leaves_such_a_loop() -> None:
    def program(key: Any, n: Any) -> Any:
        def goes_on(carry: Any) -> Any:
            hostcall.jax.call(lambda *_: None, (), carry[1], wait=False)
            return carry[1] < 3

        step = lambda carry: (jax.random.split(carry[0])[0], carry[1] + 1)  # noqa: E731
        return jax.random.key_data(lax.while_loop(goes_on, step, (key, n))[0])

    keys = jax.random.split(jax.random.key(1), (2, 3))
    steps = jnp.arange(6).reshape(2, 3)
    expected = [
        [program(key, n) for key, n in zip(*row, strict=True)]
        for row in zip(keys, steps, strict=True)
    ]
    assert_same(jax.jit(jax.vmap(jax.vmap(program)))(keys, steps), jnp.array(expected))


class Point(NamedTuple):
    x: Any
    name: str


class Thing:
    def __init__(self) -> None:
        self.size = 3

    def __repr__(self) -> str:
        return "thing"


THING = Thing()


@pytest.mark.each_value
@each_mode
@pytest.mark.parametrize(
    "given",
    [
        lambda x: ("step", x),
        lambda x: (x, "step"),
        lambda x: ({"name": "loss", "value": x, "of": [x, b"bytes", None]},),
        lambda x: (Point(x, "point"),),
        lambda x: (THING, frozenset([1]), {1, 2}, x),
        lambda _: (),
        lambda _: ("nothing else",),
        lambda x: (x, 1, 2.0, True, 1j),
        lambda x: (lambda: None, x)[1:],
    ],
)
def test_arguments_that_are_no_arrays(given: Any, mode: Any) -> None:
    def program(log: Log, x: Any) -> Any:
        log(*given(x))
        return 2 * x

    check(program, SCALAR, mode, ordered=True)
    check(batched(differentiated(rematerialized(program))), SCALAR, jax.jit, ordered=False)


def test_what_the_function_is_given() -> None:
    got: list[Any] = []
    texts = np.array(["a", "b"])  # which `jax.debug.callback` refuses
    named = {"a": X, "b": "b"}
    hostcall.jax.call(lambda *args: got.append(args), (), THING, named, texts, wait=False)
    hostcall.barrier()
    ((thing, named, same),) = got
    assert thing is THING
    assert same is texts
    assert named["b"] == "b"
    assert type(named["a"]) is np.ndarray
    assert_same(named["a"], X)


def test_calls_with_equal_arguments_share_a_program() -> None:
    seen: list[str] = []

    def note(name: str, x: Any) -> None:
        seen.append(f"{name} {float(x)}")

    for name in ("a", "b", "a"):
        hostcall.jax.call(note, (), name, X[1], wait=False, ordered=True)
    hostcall.barrier()
    assert seen == ["a 1.0", "b 1.0", "a 1.0"]


def test_a_call_that_is_waited_for_takes_arrays_alone() -> None:
    with pytest.raises(TypeError, match=r"'step' is not an array.*wait=False takes it"):
        hostcall.jax.call(print, (), "step", X)


@pytest.mark.parametrize("order", [["waits", "goes on"], ["goes on", "waits"]])
def test_one_order_for_calls_that_are_waited_for_and_others(order: list[str]) -> None:
    seen: list[Any] = []

    def note(x: Any) -> None:
        seen.append(float(x))

    def step(i: Any, x: Any) -> Any:
        for name in order:
            hostcall.jax.call(note, (), x, ordered=True, wait=name == "waits")
            if name == "goes on":
                io_callback(hostcall.barrier, None, ordered=True)
            x = x + 1
        return x

    jax.block_until_ready(jax.jit(lambda x: lax.fori_loop(0, 3, step, x))(jnp.float32(0)))
    jax.effects_barrier()
    hostcall.barrier()
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("transform", [eagerly, jax.vmap, jax.checkpoint])
def test_calls_that_must_run_once_are_refused_as_before(transform: Any) -> None:
    def strict(x: Any) -> Any:
        hostcall.jax.call(print, (), x, ordered=True)
        return lax.cond(x > 1, lambda: [hostcall.jax.call(print, (), x), x][1], lambda: x)

    program = transform(strict)
    if transform is eagerly:
        jax.jit(program).trace(SCALAR)
    elif transform is jax.vmap:
        with pytest.raises(NotImplementedError, match="the condition may differ"):
            program(X)
    else:
        with pytest.raises(NotImplementedError, match=r"Effects not supported .* wait=False"):
            jax.grad(program)(SCALAR)


def test_calls_here_and_on_an_executor_share_the_room() -> None:
    """The log is the function's; the call that is dropped waits in the other queue."""
    seen: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    def note(i: Any) -> None:
        seen.append(int(i))
        began.set()
        go_on.wait(PATIENCE)

    def send(i: int, executor: Any = None) -> None:
        how: dict[str, Any] = {"wait": False, "queue": 1, "when_full": "drop_oldest"}
        program = jax.jit(lambda i: hostcall.jax.call(note, None, i, executor=executor, **how))
        jax.block_until_ready(program(i))
        jax.effects_barrier()

    with ThreadPoolExecutor(1) as pool:
        try:
            send(0)
            began.wait(PATIENCE)
            send(1)
            send(2, pool)
        finally:
            go_on.set()
        hostcall.barrier()
    assert sorted(seen) == [0, 2]

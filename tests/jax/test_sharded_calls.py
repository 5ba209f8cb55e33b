"""Calls on several devices: in `jax.pmap` and `jax.shard_map`, and with `sharding=`."""

import collections
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.installed import TENSORFLOW
from tests.support.threads import Alone, in_threads, meeting

# All of this runs in a process of eight devices of the CPU.
PREPARATION = """import os; os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8" """
pytestmark = pytest.mark.runs_in("worker")

call = hostcall.jax.call
P = jax.P
X = np.arange(16, dtype=np.float32)

# Calls, each by the first element and the size of the function's argument.
WHOLE = [(0.0, 16)]
QUARTERS = [(4.0 * k, 4) for k in range(4)]
HALVES = [(0.0, 8), (8.0, 8)]
EIGHTHS = [(2.0 * k, 2) for k in range(8)]
# The axis of two devices is divided first, then that of four.
OTHER_EIGHTHS = [(8.0 * j + 2 * i, 2) for i in range(4) for j in range(2)]


def over(*axes: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))
    return jax.NamedSharding(mesh, P(*axes))


def halves() -> Any:
    return jax.device_put(X, over("j"))


def on_each(function: Any) -> Any:
    mesh = over().mesh
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=P("i")))


class Doubling:
    """Doubles arrays, and keeps the first element and the size of each."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def __call__(self, v: Any) -> Any:
        self.seen.append((float(v.flat[0]), v.size))
        return v * 2

    def calls(self) -> list[tuple[float, int]]:
        jax.effects_barrier()
        calls, self.seen = self.seen, []
        return calls


def refusal(function: Any, *args: Any) -> str:
    try:
        jax.block_until_ready(function(*args))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return text.replace("PartitionSpec(", "P(")  # as JAX 0.8 writes it
    return "nothing was raised"


FORMS: dict[str, tuple[Callable[[], Any], list[tuple[float, int]]]] = {
    "whole": (P, WHOLE),
    "one device": (lambda: jax.sharding.SingleDeviceSharding(jax.devices()[3]), WHOLE),
    "named whole": (over, WHOLE),
    "i": (lambda: over("i"), QUARTERS),
    "j": (lambda: over("j"), HALVES),
    "both": (lambda: over(("i", "j")), EIGHTHS),
    "the other way": (lambda: over(("j", "i")), OTHER_EIGHTHS),
}


@pytest.mark.parametrize("kind", ["unordered", "pure", "ordered"])
@pytest.mark.parametrize("form", FORMS)
def test_calls_get_what_is_said(form: str, kind: str) -> None:
    sharding, expected = FORMS[form]
    doubling = Doubling()
    how: Any = {"sharding": sharding()} | ({} if kind == "unordered" else {kind: True})
    program = lambda x: call(doubling, x, x, **how) + 1  # noqa: E731
    for run in (jax.jit(program), program) if kind == "unordered" else (jax.jit(program),):
        np.testing.assert_array_equal(run(halves()), X * 2 + 1)
        calls = doubling.calls()
        if kind != "ordered":
            calls, expected = sorted(calls), sorted(expected)
        assert calls == expected


KINDS: dict[str, Callable[..., Any]] = {
    "pure": functools.partial(call, pure=True),
    "unordered": call,
    "ordered": functools.partial(call, ordered=True),
    "callback": lambda function, result, x: hostcall.callback(function, result=result)(x),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_one_for_all_devices_where_nothing_is_said(kind: str) -> None:
    doubling = Doubling()
    program = jax.jit(lambda x: KINDS[kind](doubling, x, x) + x)
    np.testing.assert_array_equal(program(halves()), X * 3)
    assert doubling.calls() == WHOLE


def test_calls_in_programs_for_changing_devices_run_in_order() -> None:
    log: list[int] = []

    def program(x: Any) -> Any:
        for k in (0, 1):
            call(lambda v: log.append(int(v[0])), None, x + k, ordered=True)
        return x

    for n in range(6):
        mesh = jax.sharding.Mesh(np.roll(jax.devices(), n)[:2], ["x"])
        x = jax.device_put(np.arange(2) + 10 * n, jax.NamedSharding(mesh, P("x")))
        jax.jit(program)(x)
    jax.effects_barrier()
    assert log == [10 * n + k for n in range(6) for k in (0, 1)]


def test_ordered_calls_run_in_program_order_and_in_that_of_parts() -> None:
    log: list[float] = []

    def tell(x: Any, **options: Any) -> None:
        call(lambda v: log.append(float(v.flat[0])), None, x, ordered=True, **options)

    def iteration(k: Any, x: Any) -> Any:
        tell(x, sharding=over("i"))
        tell(x + 1, sharding=P())
        return x + 100

    program = jax.jit(lambda x: jax.lax.fori_loop(0, 2, iteration, x))
    program(program(halves()))
    jax.effects_barrier()
    assert log == [k + first for k in (0, 100, 200, 300) for first in (0, 4, 8, 12, 1)]


def test_branches_and_conditions_of_loops() -> None:
    doubling = Doubling()

    def both(x: Any) -> Any:
        x = jax.lax.cond(x.sum() > 0, lambda x: call(doubling, x, x, sharding=P()), jnp.sin, x)
        more = functools.partial(call, lambda v: v.sum() < 1000, jax.ShapeDtypeStruct((), bool))
        return jax.lax.while_loop(lambda x: more(x, sharding=P()), lambda x: x * 2, x)

    # 120 is doubled by the branch to 240 in all, and by the loop to 480, 960 and 1920.
    np.testing.assert_array_equal(jax.jit(both)(halves()), 16 * X)
    assert doubling.calls() == WHOLE


def test_structures_of_arrays_and_of_shardings() -> None:
    shapes: list[Any] = []

    def scaled(arrays: Any, by: Any) -> Any:
        shapes.append([arrays["a"].shape, arrays["t"].shape, by.shape])
        return {"scaled": arrays["a"] * arrays["t"] + by, "sum": arrays["a"].sum(keepdims=True)}

    rows = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    arrays = {"a": jnp.asarray(rows), "t": jnp.float32(3)}
    results = {"scaled": arrays["a"], "sum": jax.ShapeDtypeStruct((4, 1), np.float32)}
    sharding = (({"a": over("i"), "t": None}, None), over("i"))
    out = jax.jit(lambda d: call(scaled, results, d, jnp.float32(1), sharding=sharding))(arrays)
    assert shapes == [[(2, 2), (), ()]] * 4
    np.testing.assert_array_equal(out["scaled"], 3 * rows + 1)
    np.testing.assert_array_equal(out["sum"], rows.reshape(4, 4).sum(1, keepdims=True))


@pytest.mark.parametrize(
    "name", ["bool", "int4", "uint8", "bfloat16", "float8_e4m3fn", "complex64"]
)
def test_dtypes(name: str) -> None:
    x = jnp.asarray(np.arange(8) % 2, dtype=name)
    for sharding in (P(), over("i")):
        y = jax.jit(lambda x, s=sharding: call(lambda v: v, x, x, sharding=s))(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)


def test_vmap() -> None:
    rows = X.reshape(2, 8)
    for sharding, method, expected in (
        (P(), "sequential", HALVES),
        (P(), "expand_dims", WHOLE),
        (over("i"), "sequential", EIGHTHS),
        (over("i"), "expand_dims", [(2.0 * k, 4) for k in range(4)]),
    ):
        doubling = Doubling()
        one = functools.partial(call, doubling, sharding=sharding, vmap_method=method)
        np.testing.assert_array_equal(jax.jit(jax.vmap(lambda x, f=one: f(x, x)))(rows), rows * 2)
        assert sorted(doubling.calls()) == expected
    axis = jax.vmap(
        lambda x: call(np.negative, x, x, sharding=over("i"), vmap_method="expand_dims"),
        spmd_axis_name="j",
    )
    text = refusal(jax.jit(axis), rows)
    assert "devices that should have the same shard of an array have different" in text


def test_gradients() -> None:
    doubling = Doubling()

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return call(doubling, x, x, sharding=over("i"), ordered=True)

    def backward(_: Any, upstream: Any) -> Any:
        return (call(doubling, upstream, upstream, sharding=P()),)

    doubled.defvjp(lambda x: (doubled(x), None), backward)
    gradient = jax.jit(jax.grad(lambda x: (doubled(x) * jnp.arange(16)).sum()))(halves())
    np.testing.assert_array_equal(gradient, 2 * X)
    assert sorted(doubling.calls()) == sorted(QUARTERS + WHOLE)
    beside = jax.grad(lambda x: [call(doubling, x, x * 0, sharding=P()), (x * x).sum()][1])
    assert "JAX knows no derivative of a Python function" in refusal(jax.jit(beside), halves())


def test_a_mesh_that_types_tell_of() -> None:
    doubling = Doubling()
    explicit = (jax.sharding.AxisType.Explicit,)  # the default since JAX 0.9
    with jax.set_mesh(jax.make_mesh((8,), ("d",), axis_types=explicit)):

        def program(sharding: Any, **options: Any) -> Any:
            x = jnp.arange(16.0, out_sharding=P("d"))
            return call(doubling, x, x, sharding=sharding, **options)

        for sharding, options, calls in ((P("d"), {}, 8), (P(), {}, 1), (None, {"pure": True}, 1)):
            y = jax.jit(functools.partial(program, sharding, **options))()
            np.testing.assert_array_equal(y, X * 2)
            assert len(doubling.calls()) == calls
        unknown = refusal(jax.jit(functools.partial(program, P("e"))))
        assert "sharding names ['e'], and the axes of the mesh are ['d']." in unknown


def test_an_array_is_gathered_for_a_call_and_divided_again() -> None:
    """The program that jax#38164 asks for."""
    doubling = Doubling()
    parts = over(("i", "j"))

    @jax.jit
    def program(x: Any) -> Any:
        one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return jax.lax.with_sharding_constraint(call(doubling, x, x, sharding=one), parts)

    y = program(jax.device_put(X, parts))
    assert y.sharding.spec == parts.spec
    np.testing.assert_array_equal(y, 2 * X)
    assert doubling.calls() == WHOLE


def test_all_devices_end_where_one_call_fails() -> None:
    """One call fails, at values that come and go: the next run is sound."""

    def picky(v: Any) -> Any:
        if v.flat[0] == 4:
            raise KeyError("no such thing")
        return v

    for sharding, start in ((P(), 4), (over("i"), 0)):
        program = jax.jit(lambda x, s=sharding: call(picky, x, x, sharding=s).sum())
        for _ in range(2):
            with pytest.raises(jax.errors.JaxRuntimeError) as caught:
                float(program(halves() + np.float32(start)))
            assert repr(hostcall.last_error(caught.value)) == "KeyError('no such thing')"
            assert float(program(halves() + np.float32(start + 1))) == X.sum() + 16 * (start + 1)


def test_devices_do_not_wait_for_one_that_has_failed_before() -> None:
    """Some devices wait at a call that the one which has failed will never come to."""
    doubling = Doubling()

    def fail(v: Any) -> Any:
        if v[0] == 4:
            raise KeyError("no such thing")
        return v

    @jax.jit
    def program(x: Any) -> Any:
        x = on_each(lambda x: call(fail, x, x))(x)
        return call(doubling, x, x, sharding=over("i"))

    text = refusal(program, jax.device_put(X, over("i")))
    status = "UNKNOWN" if jax.__version_info__ >= (0, 9) else "INTERNAL: Compute error"
    assert text.startswith(f"JaxRuntimeError: {status}: KeyError: 'no such thing'")
    assert doubling.calls() == []


def test_inside_of_shard_map_each_device_calls_for_itself() -> None:
    doubling = Doubling()
    y = on_each(lambda x: call(doubling, x, x))(halves())
    np.testing.assert_array_equal(y, X * 2)
    assert sorted(doubling.calls()) == sorted(QUARTERS * 2)
    for sharding in (P(), over("i")):
        text = refusal(on_each(lambda x, s=sharding: call(doubling, x, x, sharding=s)), halves())
        assert "sharding= is for calls outside of jax.shard_map" in text


VARYING: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: lax.scan(lambda c, _: (doubled(c), doubled(c)), x, None, length=3)[0],
    "ordered scan": lambda x: lax.fori_loop(0, 3, lambda _, c: doubled(c, ordered=True), x),
    "while": lambda x: lax.while_loop(
        lambda c: call(lambda v: v.max() < 100, jax.ShapeDtypeStruct((), bool), c), doubled, x
    ),
    "cond": lambda x: lax.cond(x.sum() > 20, lambda x: doubled(x, pure=True), lambda x: x, x),
    "vmap": jax.vmap(lambda x: doubled(x, vmap_method="sequential")),
    "vmap of batches": jax.vmap(lambda x: doubled(x, vmap_method="expand_dims")),
    "sum": lambda x: x + lax.psum(call(np.sum, jax.ShapeDtypeStruct((), np.float32), x), "i"),
}


@pytest.mark.parametrize("name", VARYING)
def test_results_vary_as_arguments_do_in_checked_shard_map(name: str) -> None:
    mesh = over().mesh
    how: Any = {"mesh": mesh, "in_specs": P("i"), "out_specs": P("i")}
    checked, unchecked = (
        jax.jit(jax.shard_map(VARYING[name], check_vma=check, **how)) for check in (True, False)
    )
    np.testing.assert_array_equal(checked(X + 1), unchecked(X + 1))


def test_gradients_in_checked_shard_map() -> None:
    """Each argument gets a gradient that varies as it does."""

    @jax.custom_vjp
    def scaled(x: Any, by: Any) -> Any:
        return call(np.multiply, x, x, by)

    def backward(kept: Any, upstream: Any) -> Any:
        x, by = kept
        of_by = call(np.vdot, jax.ShapeDtypeStruct((), x.dtype), upstream, x)
        return call(np.multiply, x, upstream, by), lax.psum(of_by, "i")

    scaled.defvjp(lambda x, by: (scaled(x, by), (x, by)), backward)

    def loss(x: Any, by: Any) -> Any:
        return lax.psum((scaled(x, by) * x).sum(), "i")

    specs = P("i"), P()
    gradients = jax.shard_map(
        jax.grad(loss, (0, 1)), mesh=over().mesh, in_specs=specs, out_specs=specs
    )
    of_x, of_by = jax.jit(gradients)(X, np.float32(3))
    np.testing.assert_array_equal(of_x, 2 * 3 * X)
    assert of_by == (X * X).sum()


def test_a_callback_with_a_gradient_in_checked_shard_map() -> None:
    product = hostcall.callback(
        np.multiply,
        result=lambda x, y: x,
        stateful=False,
        grad=lambda inputs, results, upstream: [upstream * inputs[1], None],
    )
    slope = on_each(jax.grad(lambda x: product(x, jnp.cos(x)).sum()))(X)
    np.testing.assert_allclose(slope, np.cos(X), rtol=1e-6)


def test_results_do_not_vary_along_other_axes() -> None:
    """The devices along "j" have the same arguments: the results may be said to be the same."""
    text = refusal(
        jax.jit(jax.shard_map(doubled, mesh=over().mesh, in_specs=P("i"), out_specs=P())), X
    )
    assert "out_specs" in text
    np.testing.assert_array_equal(on_each(doubled)(X), 2 * X)


def test_what_cannot_be_divided_is_refused() -> None:
    other = jax.NamedSharding(jax.make_mesh((8,), ("d",)), P("d"))
    lone = jax.ShapeDtypeStruct((), np.float32)
    refused: list[tuple[Any, Any, Any, str]] = [
        ("i", X, X, "TypeError: hostcall.jax.call of negative, "),
        ((P(), P(), P()), X, X, "and is a tuple of 3."),
        (P("i"), X, X, "nothing says of which mesh"),
        (over("i", "j"), X, X, "[16] has 1 dimensions, and its sharding P('i', 'j') is for 2"),
        (over("i"), X[:15], X[:15], "[15] cannot be divided by P('i',): 15 is not a multiple of 4"),
        ((over("i"), other), X, X, "the shardings of one call have to be of one mesh"),
        ((over("i"), None), lone, X, "a result of shape [] has no sharding along ['i']"),
        ((({"x": over("i")},), None), X, X, "sharding is not of the structure of the arrays"),
    ]
    for sharding, result, x, text in refused:
        assert text in refusal(lambda: call(np.negative, result, x, sharding=sharding))  # noqa: B023


def test_gpus_are_refused_when_compiled() -> None:
    def lowered(x: Any, **options: Any) -> Any:
        program = jax.jit(lambda x: call(np.negative, x, x, **options))
        return refusal(lambda: program.trace(x).lower(lowering_platforms=("cuda",)).as_text())

    refused: list[dict[str, Any]] = [{"sharding": P()}, {"sharding": over("i")}]
    for options in (*refused, {}, {"ordered": True}):
        text = lowered(halves(), **options)
        assert text.startswith("NotImplementedError: hostcall.jax.call of negative")
        assert "this program is for cuda" in text
    assert lowered(halves(), pure=True) == "nothing was raised"


def test_programs_in_calls() -> None:
    """A program for one device can run in a call, and one for several cannot."""

    def one(v: Any) -> Any:
        return np.asarray(jax.jit(lambda v: call(np.negative, v, v, ordered=True))(v))

    def several(v: Any) -> Any:
        program = jax.jit(lambda v: call(np.sin, v, v, sharding=P()))
        return np.asarray(program(jax.device_put(v, over("i"))))

    run = jax.jit(lambda x: call(one, x, x, sharding=over("i")))
    np.testing.assert_array_equal(run(halves()), -X)
    refused = refusal(jax.jit(lambda x: call(several, x, x, sharding=P())), halves())
    assert "a JAX program for several devices calls runs another such program" in refused


def test_several_threads() -> None:
    @jax.jit
    def program(x: Any) -> Any:
        y = call(lambda v: v * 2, x, x, sharding=over("i"))
        return call(lambda v: v + 1, x, y, sharding=P(), ordered=True)

    def run(_: int) -> None:
        for k in range(20):
            np.testing.assert_array_equal(program(halves() + np.float32(k)), (X + k) * 2 + 1)

    in_threads(4, run)


def test_with_the_older_partitioner_of_xla() -> None:
    doubling = Doubling()
    jax.config.update("jax_use_shardy_partitioner", False)
    for sharding in (P(), over("i")):
        jax.jit(lambda x, s=sharding: call(doubling, x, x, sharding=s, ordered=True))(halves())
    jax.config.update("jax_use_shardy_partitioner", True)
    assert doubling.calls() == WHOLE + QUARTERS


def test_calls_for_shards_take_turns_unless_they_are_concurrent() -> None:
    alone, meet = Alone(), meeting(4)
    how: Any = {"sharding": over("i"), "pure": True}
    jax.block_until_ready(
        jax.jit(lambda x: [call(alone, x, x + k, **how) for k in (0, 1)])(halves())
    )
    assert (alone.overlaps, alone.calls) == (0, 8)
    met = jax.jit(lambda x: call(meet, x, x, concurrent=True, **how))(halves())
    np.testing.assert_array_equal(met, 2 * X)


FOUR = np.arange(4, dtype=np.float32)


def on_two(function: Any, **options: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]).reshape(1, 2), ("j", "i"))
    return jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=P("i"), **options)


def doubled(x: Any, **options: Any) -> Any:
    return call(lambda v: v * 2, x, x, **options)


def test_pmap() -> None:
    for options in ({}, {"pure": True}, {"ordered": True}):
        y = jax.pmap(lambda x, o=options: doubled(x, **o))(FOUR[:2])
        np.testing.assert_array_equal(y, 2 * FOUR[:2])


def test_pmap_of_a_loop() -> None:
    log: list[int] = []

    def iteration(i: Any) -> Any:
        call(lambda v: log.append(int(v)), None, i)
        return i + 1

    jax.pmap(lambda i: lax.while_loop(lambda i: i < 3, iteration, i))(jnp.arange(2))
    jax.effects_barrier()
    assert sorted(log) == [0, 1, 1, 2, 2]


@pytest.mark.skipif(not TENSORFLOW, reason="about both frameworks")
def test_shard_map_of_a_tensorflow_function() -> None:
    import tensorflow as tf

    shapes: list[Any] = []

    def cos(v: Any) -> Any:
        shapes.append(v.shape)
        return np.cos(v)

    def function(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(cos, [x], x.dtype), x.shape)

    called = hostcall.jax.from_tf(tf.function(function))
    y = jax.jit(on_two(called, check_vma=False))(FOUR)
    assert len(y.sharding.device_set) == 2
    np.testing.assert_allclose(y, np.cos(FOUR), rtol=1e-6)
    assert shapes == [(2,), (2,)]


def test_order_on_each_device() -> None:
    log = collections.defaultdict(list)

    def program(i: Any, x: Any) -> Any:
        for y in (x, x + 1):
            call(lambda i, v: log[int(i[0])].append(v.tolist()), None, i, y, ordered=True)
        return x

    jax.jit(on_two(program))(np.arange(2), np.arange(4))
    jax.effects_barrier()
    assert log == {0: [[0, 1], [1, 2]], 1: [[2, 3], [3, 4]]}


def test_order_across_devices() -> None:
    log: list[float] = []

    def tell(x: Any) -> None:
        call(lambda v: log.append(float(v)), None, x, ordered=True)

    slow = jax.jit(lambda x: tell((x @ x).sum()))
    quick = jax.jit(tell)
    x = jax.device_put(jnp.ones([200, 200]), jax.devices()[0])
    y = jax.device_put(3.0, jax.devices()[1])
    for _ in range(3):
        slow(x)
        quick(y)
    jax.effects_barrier()
    assert log == [200.0**3, 3.0] * 3


def test_ordered_calls_on_two_devices_and_then_on_one() -> None:
    log: list[Any] = []

    def program(x: Any) -> Any:
        return [call(lambda v: log.append(v.shape), (), x, ordered=True), x][1]

    for run in (jax.jit(on_two(program)), program, jax.jit(program)):
        run(FOUR)
    jax.effects_barrier()
    assert log == [(2,), (2,), (4,), (4,)]


def test_what_only_some_axes_are_divided_of_by_hand() -> None:
    with pytest.raises(NotImplementedError, match="all mesh axes are partitioned manually"):
        jax.jit(on_two(doubled, axis_names={"i"}))(FOUR)


def by_jax(note: Any, x: Any) -> None:
    jax.debug.callback(note, x)


def ours(note: Any, x: Any) -> None:
    call(note, (), x, wait=False)


LOGGING: dict[str, Callable[[Any], Any]] = {
    "divided": lambda log: jax.jit(lambda x: [log(x), x + 1][1])(halves()),
    "divided, in a loop": lambda log: jax.jit(
        lambda x: lax.fori_loop(0, 2, lambda _, x: [log(x), x + 0][1], x)
    )(halves()),
    "divided, rematerialized": lambda log: jax.jit(
        jax.grad(lambda x: jax.checkpoint(lambda x: [log(x), jnp.sin(x)][1])(x).sum())
    )(halves()),
    "by hand": lambda log: on_each(lambda x: [log(x), x + 1][1])(X),
    "pmap": lambda log: jax.pmap(lambda x: [log(x), x + 1][1])(X.reshape(8, 2)),
}


@pytest.mark.parametrize("name", LOGGING)
def test_fire_and_forget_calls_are_made_as_often_as_those_of_jax(name: str) -> None:
    seen: dict[Any, list[Any]] = {by_jax: [], ours: []}
    for way, calls in seen.items():
        note = lambda v, calls=calls: calls.append((float(np.asarray(v).flat[0]), v.size))  # noqa: E731
        jax.block_until_ready(LOGGING[name](functools.partial(way, note)))
        jax.effects_barrier()
        hostcall.barrier()
    assert sorted(seen[ours]) == sorted(seen[by_jax])
    assert seen[ours]

"""Programs over a mesh of eight devices, for a process that has them and says what comes of each.

A check returns what it has found. What must hold of it stands in `tests/jax/test_sharded_calls.py`.
"""

import functools
import json
import sys
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import hostcall
import hostcall.jax
from tests.support.threads import PATIENCE, Alone, in_threads

CHECKS: dict[str, Callable[[], Any]] = {}

call = hostcall.jax.call
P = jax.P
MESH = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))
X = np.arange(16, dtype=np.float32)
HALVES = jax.device_put(X, jax.NamedSharding(MESH, P("j")))


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    CHECKS[function.__name__] = function
    return function


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


def over(*axes: Any) -> Any:
    return jax.NamedSharding(MESH, P(*axes))


def same(found: Any, expected: Any) -> bool:
    return bool((np.asarray(found) == np.asarray(expected)).all())


def refusal(function: Any, *args: Any) -> str:
    try:
        jax.block_until_ready(function(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


@check
def shardings() -> Any:
    """Return for each sharding the calls, and whether values are right; one kind unjitted, too."""
    found = {}
    forms = {
        "whole": P(),
        "one device": jax.sharding.SingleDeviceSharding(jax.devices()[3]),
        "named whole": over(),
        "i": over("i"),
        "j": over("j"),
        "both": over(("i", "j")),
        "the other way": over(("j", "i")),
    }
    for name, sharding in forms.items():
        for kind in ({}, {"pure": True}, {"ordered": True}):
            doubling = Doubling()
            options = {"sharding": sharding, **kind}
            program = lambda x, f=doubling, o=options: call(f, x, x, **o) + 1  # noqa: E731
            right, calls = True, []
            for run in (jax.jit(program), program) if not kind else (jax.jit(program),):
                right &= same(run(HALVES), X * 2 + 1)
                calls.append(doubling.calls())
            found[" ".join([name, *kind])] = [right, *calls]
    return found


@check
def nothing_said() -> Any:
    doubling = Doubling()
    program = jax.jit(lambda x: call(doubling, x, x, pure=True))
    right = same(program(HALVES), X * 2)
    refused = [
        refusal(jax.jit(lambda x, o=ordered: call(doubling, x, x, ordered=o)), HALVES)
        for ordered in (False, True)
    ]
    stateful = hostcall.callback(result=lambda x: x)(lambda v: v)
    return [right, *doubling.calls(), refused, refusal(jax.jit(stateful), HALVES)]


@check
def order() -> Any:
    """Ordered calls for parts run part by part, call by call, in loops and between programs."""
    log: list[float] = []

    def tell(x: Any, **options: Any) -> None:
        call(lambda v: log.append(float(v.flat[0])), None, x, ordered=True, **options)

    def iteration(k: Any, x: Any) -> Any:
        tell(x, sharding=over("i"))
        tell(x + 1, sharding=P())
        return x + 100

    program = jax.jit(lambda x: jax.lax.fori_loop(0, 2, iteration, x))
    program(program(HALVES))
    jax.effects_barrier()
    return log


@check
def branches_and_conditions() -> Any:
    doubling = Doubling()

    def both(x: Any) -> Any:
        x = jax.lax.cond(x.sum() > 0, lambda x: call(doubling, x, x, sharding=P()), jnp.sin, x)
        more = functools.partial(call, lambda v: v.sum() < 1000, jax.ShapeDtypeStruct((), bool))
        return jax.lax.while_loop(lambda x: more(x, sharding=P()), lambda x: x * 2, x)

    return [np.asarray(jax.jit(both)(HALVES)).tolist(), doubling.calls()]


@check
def structures() -> Any:
    shapes: list[Any] = []

    def scaled(arrays: Any, by: Any) -> Any:
        shapes.append([arrays["a"].shape, arrays["t"].shape, by.shape])
        return {"scaled": arrays["a"] * arrays["t"] + by, "sum": arrays["a"].sum(keepdims=True)}

    arrays = {"a": jnp.arange(16.0).reshape(8, 2), "t": jnp.float32(3)}
    results = {"scaled": arrays["a"], "sum": jax.ShapeDtypeStruct((4, 1), np.float32)}
    sharding = (({"a": over("i"), "t": None}, None), over("i"))
    out = jax.jit(lambda d: call(scaled, results, d, jnp.float32(1), sharding=sharding))(arrays)
    return [shapes, {name: np.asarray(array).tolist() for name, array in out.items()}]


@check
def dtypes() -> Any:
    wrong = []
    for name in ("bool", "int4", "uint8", "bfloat16", "float8_e4m3fn", "complex64"):
        x = jnp.asarray(np.arange(8) % 2, dtype=name)
        for sharding in (P(), over("i")):
            y = jax.jit(lambda x, s=sharding: call(lambda v: v, x, x, sharding=s))(x)
            if y.dtype != x.dtype or not same(y, x):
                wrong.append([name, str(sharding)])
    return wrong


@check
def vmap() -> Any:
    """Return for each method whether the values are right, and the shapes of the calls."""
    found = []
    rows = X.reshape(2, 8)
    for sharding in (P(), over("i")):
        for method in ("sequential", "expand_dims"):
            doubling = Doubling()
            one = functools.partial(call, doubling, sharding=sharding, vmap_method=method)
            out = jax.jit(jax.vmap(lambda x, f=one: f(x, x)))(rows)
            found.append([same(out, rows * 2), sorted(doubling.calls())])
    axis = jax.vmap(
        lambda x: call(np.negative, x, x, sharding=over("i"), vmap_method="expand_dims"),
        spmd_axis_name="j",
    )
    return [found, refusal(jax.jit(axis), rows)]


@check
def gradients() -> Any:
    doubling = Doubling()

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return call(doubling, x, x, sharding=over("i"), ordered=True)

    def backward(_: Any, upstream: Any) -> Any:
        return (call(doubling, upstream, upstream, sharding=P()),)

    doubled.defvjp(lambda x: (doubled(x), None), backward)
    gradient = jax.jit(jax.grad(lambda x: (doubled(x) * jnp.arange(16)).sum()))(HALVES)
    beside = jax.grad(lambda x: [call(doubling, x, x * 0, sharding=P()), (x * x).sum()][1])
    none = refusal(jax.jit(beside), HALVES)
    return [np.asarray(gradient).tolist(), doubling.calls(), none]


@check
def under_a_mesh_with_types() -> Any:
    doubling = Doubling()
    found: list[list[Any]] = []
    explicit = (jax.sharding.AxisType.Explicit,)  # the default since JAX 0.9
    with jax.set_mesh(jax.make_mesh((8,), ("d",), axis_types=explicit)):

        def program(sharding: Any, **options: Any) -> Any:
            x = jnp.arange(16.0, out_sharding=P("d"))
            return call(doubling, x, x, sharding=sharding, **options)

        for sharding, options in ((P("d"), {}), (P(), {}), (None, {"pure": True})):
            y = jax.jit(functools.partial(program, sharding, **options))()
            found.append([same(y, X * 2), len(doubling.calls())])
        found.append([refusal(jax.jit(functools.partial(program, P("e")))), 0])
    return found


@check
def gathered_and_put_back() -> Any:
    """Run the program that jax#38164 asks for."""
    doubling = Doubling()
    parts = jax.NamedSharding(MESH, P(("i", "j")))

    @jax.jit
    def program(x: Any) -> Any:
        one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return jax.lax.with_sharding_constraint(call(doubling, x, x, sharding=one), parts)

    y = program(jax.device_put(X, parts))
    return [str(y.sharding.spec), np.asarray(y).tolist(), doubling.calls()]


@check
def failures() -> Any:
    """One call fails, at values that come and go: all devices end, and the next run is sound."""

    def picky(v: Any) -> Any:
        if v.flat[0] == 4:
            raise KeyError("no such thing")
        return v

    def outcome(program: Any, x: Any) -> Any:
        try:
            return float(program(x))
        except jax.errors.JaxRuntimeError as error:
            return repr(hostcall.last_error(error))

    found = []
    for sharding in (P(), over("i")):
        program = jax.jit(lambda x, s=sharding: call(picky, x, x, sharding=s).sum())
        start = np.float32(4 if sharding == P() else 0)
        found += [outcome(program, HALVES + start + k) for k in (0, 1, 0, 1)]
    return found


@check
def a_failure_before_others_wait() -> Any:
    """Some devices wait at a call that the one which has failed will never come to."""
    doubling = Doubling()

    def fail(v: Any) -> Any:
        if v[0] == 4:
            raise KeyError("no such thing")
        return v

    def on_each(x: Any) -> Any:
        return call(fail, x, x)

    @jax.jit
    def program(x: Any) -> Any:
        x = jax.shard_map(on_each, mesh=MESH, in_specs=P("i"), out_specs=P("i"))(x)
        return call(doubling, x, x, sharding=over("i"))

    text = refusal(program, jax.device_put(X, over("i")))
    status = "UNKNOWN" if jax.__version_info__ >= (0, 9) else "INTERNAL: Compute error"
    return [
        text.startswith(f"JaxRuntimeError: {status}: KeyError: 'no such thing'"),
        doubling.calls(),
    ]


@check
def inside_of_shard_map() -> Any:
    doubling = Doubling()

    def on_each(x: Any, **options: Any) -> Any:
        return call(doubling, x, x, **options)

    def mapped(**options: Any) -> Any:
        function = functools.partial(on_each, **options)
        return jax.jit(jax.shard_map(function, mesh=MESH, in_specs=P("i"), out_specs=P("i")))

    right = same(mapped()(HALVES), X * 2)
    calls = sorted(doubling.calls())
    return [right, calls, [refusal(mapped(sharding=s), HALVES) for s in (P(), over("i"))]]


@check
def refusals() -> Any:
    def told(sharding: Any, x: Any = X, result: Any = None) -> str:
        return refusal(
            lambda: call(np.negative, x if result is None else result, x, sharding=sharding)
        )

    return [
        told("i"),
        told((P(), P(), P())),
        told(P("i")),
        told(over("i", "j")),
        told(over("i"), X[:15]),
        told((over("i"), jax.NamedSharding(jax.make_mesh((8,), ("d",)), P("d")))),
        told((over("i"), None), result=jax.ShapeDtypeStruct((), np.float32)),
        told((({"x": over("i")},), None)),
    ]


@check
def elsewhere() -> Any:
    """Programs for GPUs, and for several processes."""

    def lowered(x: Any, platform: str = "cpu", **options: Any) -> Any:
        program = jax.jit(lambda x: call(np.negative, x, x, **options))
        return refusal(lambda: program.trace(x).lower(lowering_platforms=(platform,)).as_text())

    found = [lowered(HALVES, "cuda", sharding=s) for s in (P(), over("i"))]
    with mock.patch.object(jax, "process_count", return_value=2):
        found.extend(lowered(HALVES, sharding=s) for s in (P(), over("i")))
    return [found, lowered(HALVES, "cuda", pure=True)]


@check
def programs_in_calls() -> Any:
    """A program for one device can run in a call, and one for several cannot."""

    def one(v: Any) -> Any:
        return np.asarray(jax.jit(lambda v: call(np.negative, v, v, ordered=True))(v))

    def several(v: Any) -> Any:
        return np.asarray(
            jax.jit(lambda v: call(np.sin, v, v, sharding=P()))(jax.device_put(v, over("i")))
        )

    run = jax.jit(lambda x: call(one, x, x, sharding=over("i")))
    right = same(run(HALVES), -X)
    return [right, refusal(jax.jit(lambda x: call(several, x, x, sharding=P())), HALVES)]


@check
def several_threads() -> Any:
    wrong: list[Any] = []

    @jax.jit
    def program(x: Any) -> Any:
        y = call(lambda v: v * 2, x, x, sharding=over("i"))
        return call(lambda v: v + 1, x, y, sharding=P(), ordered=True)

    def run(_: int) -> None:
        for k in range(20):
            if not same(program(HALVES + np.float32(k)), (X + k) * 2 + 1):
                wrong.append(k)

    in_threads(4, run)
    return wrong


@check
def calls_at_the_same_time() -> Any:
    """Overlaps and calls of those that take turns; then whether concurrent ones meet."""
    alone, together = Alone(), threading.Barrier(4)

    def meet(v: Any) -> Any:
        together.wait(PATIENCE)
        return v

    how: Any = {"sharding": over("i"), "pure": True}
    jax.block_until_ready(jax.jit(lambda x: [call(alone, x, x + k, **how) for k in (0, 1)])(HALVES))
    met = jax.jit(lambda x: call(meet, x, x, concurrent=True, **how))(HALVES)
    return [alone.overlaps, alone.calls, same(met, X)]


@check
def without_shardy() -> Any:
    doubling = Doubling()
    jax.config.update("jax_use_shardy_partitioner", False)
    for sharding in (P(), over("i")):
        jax.jit(lambda x, s=sharding: call(doubling, x, x, sharding=s, ordered=True))(HALVES)
    jax.config.update("jax_use_shardy_partitioner", True)
    return doubling.calls()


def main() -> None:
    """Runs all, and writes what each returns as JSON."""
    sys.stdout.write(json.dumps({name: function() for name, function in CHECKS.items()}))

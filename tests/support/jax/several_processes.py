"""Programs for the devices of two processes, each with two: what each process sees of them.

`python -m tests.support.jax.several_processes PORT PROCESS` is one of the processes. It prints the
results of all programs as JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import hostcall.jax

call = hostcall.jax.call
P = jax.P
X = np.arange(8, dtype=np.float32)
# Process 0 has the devices whose first index is 0, and process 1 the others.
AXES = ("process", "device")
ALL = ("process", "device")

programs: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    programs[function.__name__] = function
    return function


def over(*axes: Any) -> Any:
    devices = np.array(jax.devices()).reshape(2, 2)
    return jax.NamedSharding(jax.sharding.Mesh(devices, AXES), P(*axes))


def divided(x: Any = X, *axes: Any) -> Any:
    """An array that the devices of both processes have parts of."""
    sharding = over(*axes or (ALL,))
    return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])


def run(function: Callable[..., Any], *args: Any) -> Any:
    """The results of a jitted program, whole."""
    results = jax.jit(function, out_shardings=over())(*args)
    return jax.tree.map(np.asarray, results)


def texts(function: Callable[..., Any], *args: Any) -> list[str]:
    """The error of a program, and the exception behind it."""
    try:
        run(function, *args)
        jax.effects_barrier()
    except Exception as error:
        return [f"{type(error).__name__}: {error}", repr(hostcall.last_error(error))]
    return ["nothing was raised", ""]


class Doubling:
    """Doubles arrays, keeps them, and adds what is different in each call."""

    def __init__(self, by: float = 0.0) -> None:
        self.seen: list[Any] = []
        self.by = by

    def __call__(self, v: Any) -> Any:
        self.seen.append(v.tolist())
        return v * 2 + np.float32(self.by)

    def calls(self) -> list[Any]:
        jax.effects_barrier()
        calls, self.seen = self.seen, []
        return calls


@program
def stock() -> Any:
    doubling = Doubling(by=jax.process_index())

    def both(x: Any) -> Any:
        return jax.pure_callback(lambda v: doubling(np.asarray(v)), x, x)

    return {"results": run(both, divided()).tolist(), "calls": doubling.calls()}


@program
def pure() -> Any:
    doubling = Doubling(by=jax.process_index() + np.random.default_rng().random())
    results = run(lambda x: call(doubling, x, x, pure=True), divided())
    return {"results": results.tolist(), "calls": doubling.calls()}


@program
def used_by_what_is_divided() -> Any:
    doubling = Doubling(by=1 + jax.process_index())

    def used(x: Any) -> Any:
        y = call(doubling, x, x + 1, pure=True)
        return (jax.lax.with_sharding_constraint(y, over(ALL)) * x).sum()

    return {"results": run(used, divided()).tolist(), "calls": doubling.calls()}


@program
def effects() -> Any:
    notes = Doubling()

    def nothing(x: Any) -> Any:
        call(lambda v: [notes(v), None][1], None, x, sharding=P())
        return x

    results = [run(lambda x: x + call(notes, x, x + 1, sharding=P()), divided())]
    results += [run(nothing, divided())]
    eager = call(notes, jax.ShapeDtypeStruct((8,), np.float32), divided(), sharding=P())
    results += [run(lambda x: x, eager)]
    return {"results": np.array(results).tolist(), "calls": notes.calls()}


@program
def ordered() -> Any:
    log: list[float] = []

    def step(_: Any, x: Any) -> Any:
        for sharding in (P(), over("process")):
            call(lambda v: log.append(float(v[0])), None, x, ordered=True, sharding=sharding)
        return x + call(lambda v: v * 0 + 100, x, x, ordered=True, sharding=P())

    for _ in range(2):
        run(lambda x: jax.lax.fori_loop(0, 2, step, x), divided())
    jax.effects_barrier()
    return log


@program
def shards() -> Any:
    found = {}
    for name, axes in {"process": "process", "device": "device", "both": ALL}.items():
        doubling = Doubling(by=1 + jax.process_index())
        how: Any = {"sharding": over(axes)}
        results = run(lambda x, d=doubling, h=how: call(d, x, x, **h), divided())
        found[name] = {"results": results.tolist(), "calls": sorted(doubling.calls())}
    return found


@program
def named_devices() -> Any:
    found = []
    for device in (jax.devices()[0], jax.devices()[3]):
        doubling = Doubling(by=jax.process_index())
        one = jax.sharding.SingleDeviceSharding(device)
        results = run(lambda x, d=doubling, s=one: call(d, x, x, sharding=s), divided())
        found.append({"results": results.tolist(), "calls": len(doubling.calls())})
    return found


@program
def dtypes() -> Any:
    """Whether arrays arrive bit for bit: signs of zeros, and what NaN holds, too."""
    bits = np.random.default_rng(1).integers(0, 256, 64).astype(np.uint8)
    bits[:4] = np.array([-0.0], np.float32).view(np.uint8)
    names = "bool int8 uint16 int32 uint64 bfloat16 float8_e4m3fn float32 float64 complex64"
    found = {}
    with jax.enable_x64(True):
        for name in [*names.split(), "complex128"]:
            dtype = jnp.dtype(name)
            made = bits % 2 == 1 if name == "bool" else bits.view(dtype)
            here = made if jax.process_index() == 0 else made[::-1].copy()
            struct = jax.ShapeDtypeStruct(made.shape, dtype)
            got = run(lambda x, s=struct, h=here: call(lambda _: h, s, x, pure=True), divided())
            found[name] = got.dtype == dtype and got.tobytes() == made.tobytes()
        four = np.arange(-8, 8).astype(ml_dtypes.int4)
        struct = jax.ShapeDtypeStruct((16,), four.dtype)
        got = run(lambda x: call(lambda _: four, struct, x, pure=True).astype(jnp.int8), divided())
        found["int4"] = got.tolist() == [*range(-8, 8)]
    return found


@program
def errors() -> Any:
    def fail(v: Any) -> Any:
        if v[0] == 4:
            raise KeyError("no such thing")
        return v

    found = {}
    for name, axes, start in (("whole", (), 4), ("shard", ("process",), 0)):
        how: Any = {"sharding": over(*axes)}
        program = lambda x, h=how: call(fail, x, x, **h).sum()  # noqa: E731
        found[name] = [*texts(program, divided(X + start)), *texts(program, divided(X + 1))]
    later: list[Any] = []

    def goes_on(x: Any) -> Any:
        y = call(fail, x, x, ordered=True, sharding=P())
        call(lambda v: later.append(v), None, y, sharding=P())
        call(lambda v: later.append(v), None, x, ordered=True, sharding=P())
        return y

    found["ordered"] = texts(goes_on, divided(X + 4))
    wrong = lambda x: call(lambda v: v[:2], x, x, pure=True)  # noqa: E731
    found["wrong shape"] = texts(wrong, divided())

    def long(v: Any) -> Any:
        raise ValueError("begin" + 9000 * "-" + "end")

    found["long"] = texts(lambda x: call(long, x, x, pure=True), divided())
    return found | {"calls after a failed one": len(later)}


@program
def vmap_and_gradients() -> Any:
    doubling = Doubling()
    rows = divided(X.reshape(2, 4), None, ALL)
    one = lambda x: call(doubling, x, x, pure=True, vmap_method="sequential")  # noqa: E731
    found = {"vmap": [run(jax.vmap(one), rows).tolist(), len(doubling.calls())]}

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return call(doubling, x, x, sharding=P())

    def backward(_: Any, upstream: Any) -> Any:
        return (call(doubling, upstream, upstream, pure=True),)

    doubled.defvjp(lambda x: (doubled(x), None), backward)
    slope = run(jax.grad(lambda x: (doubled(x) * x).sum()), divided())
    return found | {"gradient": [slope.tolist(), len(doubling.calls())]}


@program
def several_calls() -> Any:
    """Calls that do not wait for one another, some of which overlap."""
    doubling = Doubling(by=jax.process_index())

    def several(x: Any) -> Any:
        parts = [call(doubling, x, x + n, pure=True, concurrent=n % 2 == 1) for n in range(6)]
        return sum(parts) + call(doubling, x, x, sharding=over("device"))

    results = [run(several, divided()) for _ in range(10)]
    same = all((result == results[0]).all() for result in results)
    return {"same": same, "first": results[0].tolist(), "calls": len(doubling.calls())}


@program
def fire_and_forget() -> Any:
    doubling = Doubling()
    note = lambda v: [doubling(v), None][1]  # noqa: E731
    run(lambda x: [call(note, None, x, wait=False), x][1], divided())
    jax.effects_barrier()
    hostcall.barrier()
    return doubling.calls()


@program
def shard_map() -> Any:
    doubling = Doubling()
    mapped = jax.shard_map(
        lambda x: call(doubling, x, x), mesh=over().mesh, in_specs=P(ALL), out_specs=P(ALL)
    )
    return {"results": run(mapped, divided()).tolist(), "calls": sorted(doubling.calls())}


@program
def devices_of_one_process() -> Any:
    doubling = Doubling()
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("local",))
    x = jax.device_put(X, jax.NamedSharding(mesh, P("local")))
    y = jax.jit(lambda x: call(doubling, x, x, sharding=P()))(x)
    return {"results": np.asarray(y).tolist(), "calls": len(doubling.calls())}


@program
def a_program_for_both_in_a_call() -> Any:
    def nested(v: Any) -> Any:
        return run(lambda x: call(np.negative, x, x, sharding=P()), divided(v))

    return texts(lambda x: call(nested, x, x, sharding=P()), divided())


def main(port: str, process: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, int(process))
    found = {name: function() for name, function in programs.items()}
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    sys.stdout.flush()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Joint calls in programs for the devices of several processes.

For each shard one process calls the function: the one that `sharding=` names, or that of the first
device with the shard. The devices of a process meet as they do in a program for one process. Then
the program sends the results to the other devices with the shard, and a report of a failed call to
all of them: they end together, and none waits in a collective for a process that has failed. All
processes compile the same operations in the same order, with other attributes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from hostcall.jax import _lowering

REPORTED = "hostcall_reported"

# A report has a status code, the number of a process and a message: csrc/runtime/reports.h.
_REPORT = jax.core.ShapedArray((4096,), np.uint8)


@dataclasses.dataclass(frozen=True)
class Spread:
    """The devices of several processes, in the order of the mesh, and who makes a joint call."""

    axes: tuple[str, ...]  # all of the mesh
    replicated: tuple[str, ...]  # those along which devices have the same shard
    processes: np.ndarray  # of each device
    shards: np.ndarray  # of each device
    callers: np.ndarray  # the device of each shard whose process makes the call

    def numbers(self) -> np.ndarray:
        """Return the shard of each device among those of its process; -1 if another calls it."""
        by_process = self.processes[self.callers]
        among = np.array([(by_process[:n] == p).sum() for n, p in enumerate(by_process)])
        is_here = by_process[self.shards] == self.processes
        return np.where(is_here, among[self.shards], -1).astype(np.int32)

    def sources(self) -> np.ndarray:
        """Return whether the others with the shard get the results of each device."""
        return np.isin(np.arange(len(self.shards)), self.callers)

    @property
    def crosses(self) -> bool:
        """True if devices of several processes have the same shard."""
        return bool((self.processes[self.callers][self.shards] != self.processes).any())

    def count(self) -> tuple[int, int]:
        """Return how many shards this process calls, and how many of the devices it has."""
        here = jax.process_index()
        return (
            int((self.processes[self.callers] == here).sum()),
            int((self.processes == here).sum()),
        )


def spread(mesh: Any, axes: Sequence[str], named: Any | None) -> Spread | None:
    """Return how a call for each shard along `axes` is spread; None for one process alone."""
    # `named` is the device that `sharding=` names, or None. An abstract mesh has no devices; JAX's
    # lowering replaces it by the one of `jax.set_mesh`.
    devices = getattr(mesh, "devices", None)
    if jax.process_count() == 1 or devices is None:
        return None
    processes = np.array([device.process_index for device in devices.flat])
    if (processes == processes[0]).all():
        return None
    places = dict(zip(mesh.axis_names, np.indices(devices.shape), strict=True))
    shards = np.zeros(devices.shape, int)
    for axis in axes:
        shards = shards * mesh.shape[axis] + places[axis]
    shards = shards.ravel()
    first = named is not None and processes == named.process_index
    callers = [
        next(iter(np.flatnonzero((shards == shard) & first)), np.argmax(shards == shard))
        for shard in range(int(shards.max()) + 1)
    ]
    names = tuple(mesh.axis_names)
    replicated = tuple(axis for axis in names if axis not in axes)
    return Spread(names, replicated, processes, shards, np.array(callers))


def emit_call(
    context: Any,
    spread: Spread,
    target: str,
    operands: Sequence[Any],
    avals_in: Sequence[Any],
    avals_out: Sequence[Any],
    attributes: dict[str, int | Sequence[int]],
    effect: Any | None,
) -> Sequence[Any]:
    """Do what `_lowering.emit_call` does for a joint call, and send what it returns."""
    process = {"process": jax.process_index()}
    called = dataclasses.replace(context, tokens_out=None)
    values = _lowering.emit_call(
        called,
        target,
        operands,
        avals_in,
        [*avals_out, _REPORT],
        attributes | process,
        effect,
    )
    sent = functools.partial(_send, spread)
    *results, report = _lower(context, sent, values, [*avals_out, _REPORT])
    told = dataclasses.replace(context, tokens_in=called.tokens_out or context.tokens_in)
    # The results wait for this, so that nothing computes with those of a failed call.
    ended = _lowering.emit_call(
        told, REPORTED, [report], [_REPORT], [_NUMBER], dict(process), effect
    )
    if told.tokens_out is not None:
        context.set_tokens_out(told.tokens_out)
    return _lower(context, _after, [*ended, *results], [_NUMBER, *avals_out])


_NUMBER = jax.core.ShapedArray((), np.int32)


def _lower(
    context: Any, function: Callable[..., Any], values: Sequence[Any], avals: Sequence[Any]
) -> Sequence[Any]:
    """Emit a computation, which gets no tokens: they order the call alone."""
    inner = dataclasses.replace(
        context, avals_in=avals, tokens_in=mlir.TokenSet({}), tokens_out=None
    )
    lowered: Sequence[Any] = mlir.lower_fun(function)(inner, *values)
    return lowered


def number(spread: Spread) -> jax.Array:
    """Return this device's entry in `numbers`, in a program."""
    return _of_device(spread, spread.numbers())


def _of_device(spread: Spread, table: np.ndarray) -> jax.Array:
    here = lax.axis_index(spread.axes)
    return lax.dynamic_index_in_dim(jnp.asarray(table), here, keepdims=False)


def _send(spread: Spread, *values: jax.Array) -> list[jax.Array]:
    """Return the results of the calls, and the report of the first shard whose call has failed."""
    *results, report = values
    is_source = _of_device(spread, spread.sources())
    if spread.crosses:
        results = [_sent(value, is_source, spread.replicated) for value in results]
    tells = is_source
    if len(spread.callers) > 1:
        shard = _of_device(spread, spread.shards.astype(np.int32))
        has_failed = is_source & (report[0] != 0)
        failed = jnp.where(has_failed, shard, jnp.int32(len(spread.callers)))
        tells = has_failed & (shard == lax.pmin(failed, spread.axes))
    return [*results, _sent(report, tells, spread.axes)]


def _sent(value: jax.Array, is_source: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """Return the value of the one device that is the source among those along `axes`."""
    # A sum of bits and zeros: one of numbers would lose the sign of zero, and what a NaN holds.
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        parts = [_sent(part, is_source, axes) for part in (lax.real(value), lax.imag(value))]
        return lax.complex(*parts)
    if value.dtype == jnp.bool_:
        return _sent(value.astype(jnp.uint8), is_source, axes).astype(jnp.bool_)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        width = min(value.dtype.itemsize, 4)
        bits = lax.bitcast_convert_type(value, f"uint{8 * width}")
        return lax.bitcast_convert_type(_sent(bits, is_source, axes), value.dtype)
    masked = jnp.where(is_source, value, jnp.zeros_like(value))
    sent: jax.Array = lax.psum(masked, axes)
    return sent


def _after(ended: jax.Array, *results: jax.Array) -> list[jax.Array]:
    return [jnp.where(ended == 0, value, jnp.zeros_like(value)) for value in results]

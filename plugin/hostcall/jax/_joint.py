"""Calls that the devices of one program make together: csrc/runtime/joint_calls.cc.

A joint call has the names of the mesh axes that divide its arrays. hostcall calls the function once
for each shard; devices that differ only in other axes share a call. Outside of `jax.shard_map`
there are no such axes: the call takes whole arrays, and all devices share it.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

TARGET = "hostcall_joint"

# The name of hostcall's mesh axis, which must differ from the names of all other axes.
_AXIS = "hostcall devices"

_thread = threading.local()


@dataclasses.dataclass(frozen=True)
class Place:
    """The part of one device in a joint call: the number of its shard, a tensor<i32> in MLIR."""

    shard: Any
    shards: int
    devices: int


def can_be_made(platforms: Sequence[str]) -> bool:
    """Return whether the devices of programs for these platforms can make a call together."""
    return tuple(platforms) == ("cpu",) and jax.process_count() == 1


def lower_for_all(context: Any, operands: Sequence[Any], bind: Callable[..., Any]) -> Sequence[Any]:
    """Lower a call with whole arrays in a program whose arrays XLA divides among devices.

    `bind` makes the call with arrays, where each device runs a program of its own.
    """
    # JAX provides the devices because of `_rules.register`.
    devices = np.array(context.module_context.axis_context.device_assignment)
    mesh = jax.sharding.Mesh(devices, (_AXIS,))
    spec = jax.sharding.PartitionSpec()
    on_each = jax.shard_map(bind, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    # The user's mesh may be a different one with the same devices, so no mesh is set here.
    avals = [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in context.avals_in]
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        inner = dataclasses.replace(context, avals_in=avals)
        results: Sequence[Any] = mlir.lower_fun(on_each)(inner, *operands)
        if inner.tokens_out is not None:
            context.set_tokens_out(inner.tokens_out)
    return results


def place_of(context: Any, axes: Sequence[str] | None) -> Place | None:
    """Return the part of a device in a call; None for a program on one device.

    `axes` divide the call's arrays; None for a call that each device makes by itself.
    """
    axis_context = context.module_context.axis_context
    if not isinstance(axis_context, mlir.SPMDAxisContext) or axis_context.mesh.size == 1:
        return None
    mesh = axis_context.mesh
    if axes is None:
        return Place(_shard(context, ()), 1, 1)
    return Place(_shard(context, axes), math.prod(mesh.shape[axis] for axis in axes), mesh.size)


def _shard(context: Any, axes: Sequence[str]) -> Any:
    def number() -> list[Any]:
        return [jnp.int32(jax.lax.axis_index(tuple(axes)) if axes else 0)]

    # The tokens order the call alone, so the computation of its shard number gets none.
    inner = dataclasses.replace(context, avals_in=[], tokens_in=mlir.TokenSet({}), tokens_out=None)
    (shard,) = mlir.lower_fun(number)(inner)
    return shard


def marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function`, for which several devices wait, and mark its thread while it runs."""

    def called(*arrays: Any, **out: Any) -> Any:
        before = _waited_for()
        _thread.is_waited_for = True
        try:
            return function(*arrays, **out)
        finally:
            _thread.is_waited_for = before

    return called


def check_not_nested() -> None:
    """Raise a RuntimeError if a program for several devices would deadlock with its caller."""
    if _waited_for():
        raise RuntimeError(
            "a function that a JAX program for several devices calls runs another such program, "
            "which XLA begins when the first one has ended. Run it on one device, with arrays that "
            "jax.device_put has put there."
        )


def _waited_for() -> bool:
    return getattr(_thread, "is_waited_for", False)


def nothing_said(description: str) -> NotImplementedError:
    """Return the error of a call with a side effect that does not say which devices make it."""
    return NotImplementedError(
        f"{description}: the program is for several devices, among which XLA divides its arrays, "
        "and the call has a side effect, which is not to happen on each of them. Say what is to be "
        "called: sharding=jax.P(), of hostcall.jax.call, makes one call with whole arrays, "
        'sharding=jax.NamedSharding(mesh, jax.P("axis")) one for each shard of the arrays. '
        "Or call the function in jax.shard_map, once on each device; or, if it has no side "
        "effects, say pure=True (stateful=False of a hostcall.callback)."
    )


def not_together(description: str, platforms: Sequence[str]) -> NotImplementedError:
    """Return the error of a call that the devices of the program cannot make together."""
    return NotImplementedError(
        f"{description}: with sharding=, the devices of a program make a call together. Those of "
        "one process can, in a program for CPUs; this program is for "
        f"{', '.join(platforms)}, and {jax.process_count()} process(es). Call the function in "
        "jax.shard_map, once on each device."
    )

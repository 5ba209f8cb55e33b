"""Calls that the devices of one program make together: csrc/runtime/joint_calls.h.

Such a call has the names of the mesh axes that its arrays are divided along. The function is called
once for each shard, and devices that differ only in other axes share a call. Outside of
`jax.shard_map` there are no such axes: the call takes whole arrays, and all devices share it.
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

# A mesh axis of ours has to have a name that no other has.
_AXIS = "hostcall devices"

_thread = threading.local()


@dataclasses.dataclass(frozen=True)
class Place:
    """What a device does at such a call, in MLIR.

    Attributes:
      shard: the number of its shard, a tensor<i32>.
      shards: how many there are.
      devices: how many devices make the custom call.
    """

    shard: Any
    shards: int
    devices: int


def can_be_made(platforms: Sequence[str]) -> bool:
    """Whether the devices of programs for these platforms can make a call together."""
    return tuple(platforms) == ("cpu",) and jax.process_count() == 1


def lower_for_all(context: Any, operands: Sequence[Any], bind: Callable[..., Any]) -> Sequence[Any]:
    """Lowers a call with whole arrays in a program among whose devices XLA divides its arrays.

    Args:
      context: of the lowering.
      operands: MLIR values.
      bind: makes the call, of arrays, where each device runs a program of its own.
    """
    # JAX sees to it that the devices are known: see `_rules.register`.
    devices = np.array(context.module_context.axis_context.device_assignment)
    mesh = jax.sharding.Mesh(devices, (_AXIS,))
    spec = jax.sharding.PartitionSpec()
    on_each = jax.shard_map(bind, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    # The user's mesh may be another one of the same devices.
    avals = [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in context.avals_in]
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        inner = dataclasses.replace(context, avals_in=avals)
        results: Sequence[Any] = mlir.lower_fun(on_each)(inner, *operands)
        if inner.tokens_out is not None:
            context.set_tokens_out(inner.tokens_out)
    return results


def place_of(context: Any, axes: Sequence[str] | None) -> Place | None:
    """What a device does at a call in the program that each device runs.

    Args:
      context: of the lowering.
      axes: those that the call's arrays are divided along; None for a call that each device makes
        by itself.

    Returns:
      None where it is the only device.
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

    # Without the tokens of the call, which are not for this.
    inner = dataclasses.replace(context, avals_in=[], tokens_in=mlir.TokenSet({}), tokens_out=None)
    (shard,) = mlir.lower_fun(number)(inner)
    return shard


def marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, for whose calls several devices wait, as `check_not_nested` is to know."""

    def called(*arrays: Any, **out: Any) -> Any:
        before = _waited_for()
        _thread.is_waited_for = True
        try:
            return function(*arrays, **out)
        finally:
            _thread.is_waited_for = before

    return called


def check_not_nested() -> None:
    """Raises a RuntimeError where a program for several devices would wait for one that waits."""
    if _waited_for():
        raise RuntimeError(
            "a function that a JAX program for several devices calls runs another such program, "
            "which XLA begins when the first one has ended. Run it on one device, with arrays that "
            "jax.device_put has put there."
        )


def _waited_for() -> bool:
    return getattr(_thread, "is_waited_for", False)


def nothing_said(description: str) -> NotImplementedError:
    """The error of a call with a side effect for which nobody says which devices make it."""
    return NotImplementedError(
        f"{description}: the program is for several devices, among which XLA divides its arrays, "
        "and the call has a side effect, which is not to happen on each of them. Say what is to be "
        "called: sharding=jax.P(), of hostcall.jax.call, makes one call with whole arrays, "
        'sharding=jax.NamedSharding(mesh, jax.P("axis")) one for each shard of the arrays. '
        "Or call the function in jax.shard_map, once on each device; or, if it has no side "
        "effects, say pure=True (stateful=False of a hostcall.callback)."
    )


def not_together(description: str, platforms: Sequence[str]) -> NotImplementedError:
    """The error of a call that the devices of the program cannot make together."""
    return NotImplementedError(
        f"{description}: with sharding=, the devices of a program make a call together. Those of "
        "one process can, in a program for CPUs; this program is for "
        f"{', '.join(platforms)}, and {jax.process_count()} process(es). Call the function in "
        "jax.shard_map, once on each device."
    )

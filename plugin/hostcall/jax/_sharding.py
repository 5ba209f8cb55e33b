"""Calls in programs for several devices: `sharding=` of `hostcall.jax.call`, and joint calls.

The devices of one program make a joint call together: csrc/runtime/joint_calls.cc. It has the names
of the mesh axes that divide its arrays. hostcall calls the function once for each shard; devices
that differ only in other axes share a call. Outside of `jax.shard_map` there are no such axes: the
call takes whole arrays, and all devices share it. `_processes` has what several processes need.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from hostcall.jax import _processes
from hostcall.jax._primitive import Joint

Mesh = Any  # JAX's Mesh or AbstractMesh; hostcall uses the attributes that both have

_FORMS = (
    "sharding has to be jax.P() or a jax.sharding.SingleDeviceSharding, for one call with whole "
    'arrays; a jax.NamedSharding(mesh, jax.P("axis")), or jax.P("axis") under jax.set_mesh, for a '
    "call for each shard; or a pair of such, for the arguments and for the results"
)


@dataclasses.dataclass(frozen=True)
class Division:
    """The PartitionSpec of each argument and result; no mesh without axes that divide arrays."""

    mesh: Mesh | None
    arguments: Sequence[Any]
    results: Sequence[Any]
    joint: Joint


def division_of(sharding: Any, args: object, result: object, place: str) -> Division:
    """Return the division that `sharding`, as of `hostcall.jax.call`, declares for a call."""
    # `args` and `result` are structures of objects with a shape. A TypeError says that the sharding
    # has an unknown form, a ValueError that it cannot divide the arrays.
    if jax.sharding.get_abstract_mesh().manual_axes:
        raise ValueError(
            f"{place}: sharding= is for calls outside of jax.shard_map. Inside of it each device "
            "calls the function with its own arrays: leave sharding= out."
        )
    pair = sharding if isinstance(sharding, tuple) else (sharding, sharding)
    if len(pair) != 2:
        raise TypeError(f"{place}: {_FORMS}, and is a tuple of {len(pair)}.")
    pair = _without_none(pair)
    given = jax.tree.leaves(pair)
    # Shardings that apply to no array count too: they also say how to call the function.
    used = {axis for leaf in given for axes in _axes(_spec(leaf, place)) for axis in axes}
    arguments, results = (
        [_spec(leaf, place) for leaf in _leaves(*both, place)]
        for both in zip(pair, (args, result), strict=True)
    )
    if not used:
        return Division(None, arguments, results, Joint(device=_named(given)))
    mesh = _mesh(given, place)
    axes = tuple(axis for axis in mesh.axis_names if axis in used)
    if unknown := used - {*axes}:
        raise ValueError(
            f"{place}: sharding names {sorted(unknown)}, and the axes of the mesh are "
            f"{list(mesh.axis_names)}."
        )
    division = Division(mesh, arguments, results, Joint(axes))
    _check(division, args, result, place)
    return division


def bind(
    division: Division,
    call: Callable[..., list[Any]],
    arrays: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
) -> list[Any]:
    """Return the results of a call that devices make together."""
    # `arrays` and `results` are whole. `call` takes a device's, and `joint` of `_primitive.bind`.
    if division.mesh is None:
        return call(arrays, results, division.joint)
    mesh = division.mesh
    shards = [
        jax.ShapeDtypeStruct(
            jax.sharding.NamedSharding(mesh, spec).shard_shape(result.shape), result.dtype
        )
        for result, spec in zip(results, division.results, strict=True)
    ]

    def on_each(*local: Any) -> list[Any]:
        return call(local, shards, division.joint)

    # With explicit axes JAX's types contain the sharding, so the arrays must have it already.
    if any(kind == jax.sharding.AxisType.Explicit for kind in mesh.axis_types):
        arrays = [
            jax.sharding.reshard(array, jax.sharding.NamedSharding(mesh, spec))
            for array, spec in zip(arrays, division.arguments, strict=True)
        ]
    return list(
        jax.shard_map(
            on_each,
            mesh=mesh,
            in_specs=tuple(division.arguments),
            out_specs=list(division.results),
            check_vma=False,
        )(*arrays)
    )


def _leaves(given: object, of: Any, place: str) -> list[Any]:
    """Return a sharding for each leaf of a structure; a given one may stand for whole branches."""
    try:
        leaves: list[Any] = jax.tree.leaves(jax.tree.broadcast(given, of))
    except ValueError as error:
        raise ValueError(
            f"{place}: sharding is not of the structure of the arrays: {error}"
        ) from error
    return leaves


def _without_none(pair: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace None by an empty spec, since JAX takes None for a structure without leaves."""
    whole = jax.sharding.PartitionSpec()
    replaced: tuple[Any, ...] = jax.tree.map(
        lambda leaf: whole if leaf is None else leaf, pair, is_leaf=lambda leaf: leaf is None
    )
    return replaced


def _spec(leaf: object, place: str) -> jax.sharding.PartitionSpec:
    if isinstance(leaf, jax.sharding.SingleDeviceSharding):
        return jax.sharding.PartitionSpec()
    if isinstance(leaf, jax.sharding.NamedSharding):
        return leaf.spec
    if isinstance(leaf, jax.sharding.PartitionSpec):
        return leaf
    raise TypeError(f"{place}: {_FORMS}. {leaf!r} is not one of these.")


def _named(leaves: Sequence[Any]) -> Any | None:
    """Return the device of the first SingleDeviceSharding, if any."""
    lone = (leaf for leaf in leaves if isinstance(leaf, jax.sharding.SingleDeviceSharding))
    return next((device for leaf in lone for device in leaf.device_set), None)


def _axes(spec: jax.sharding.PartitionSpec) -> list[list[str]]:
    """Return the axes that divide each dimension of a spec."""
    entries = [entry if isinstance(entry, tuple) else (entry,) for entry in spec]
    return [[axis for axis in entry if isinstance(axis, str)] for entry in entries]


def _mesh(leaves: Sequence[Any], place: str) -> Mesh:
    named = [leaf.mesh for leaf in leaves if isinstance(leaf, jax.sharding.NamedSharding)]
    if not named:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            raise ValueError(
                f"{place}: sharding names axes, and nothing says of which mesh. Write "
                'jax.NamedSharding(mesh, jax.P("axis")), or jax.set_mesh(mesh).'
            )
        return mesh
    if any(mesh != named[0] for mesh in named):
        raise ValueError(f"{place}: the shardings of one call have to be of one mesh.")
    return named[0]


def _check(division: Division, args: object, result: object, place: str) -> None:
    for what, leaves, specs in (
        ("argument", jax.tree.leaves(args), division.arguments),
        ("result", jax.tree.leaves(result), division.results),
    ):
        for leaf, spec in zip(leaves, specs, strict=True):
            _check_divides(leaf.shape, spec, division.mesh, f"{place}: {what} {list(leaf.shape)}")
            missing = {*division.joint.axes}.difference(*_axes(spec))
            if what == "result" and missing:
                raise ValueError(
                    f"{place}: a result of shape {list(leaf.shape)} has no sharding along "
                    f"{sorted(missing)}, along which the function is called once for each shard: "
                    "the results of the shards would overwrite one another. Give each call a row "
                    "of its own in it, and sharding=(of_arguments, of_results)."
                )


def _check_divides(
    shape: Sequence[int], spec: jax.sharding.PartitionSpec, mesh: Mesh, what: str
) -> None:
    if len(spec) > len(shape):
        raise ValueError(
            f"{what} has {len(shape)} dimensions, and its sharding {spec} is for {len(spec)}. "
            "sharding can be a structure like that of the arrays: "
            "sharding=((of_x, of_y), of_result)."
        )
    for size, axes in zip(shape, _axes(spec), strict=False):
        shards = math.prod(mesh.shape[axis] for axis in axes)
        if size % shards:
            raise ValueError(
                f"{what} cannot be divided by {spec}: {size} is not a multiple of {shards}."
            )


TARGET = "hostcall_joint"

# The name of hostcall's mesh axis, which must differ from the names of all other axes.
_AXIS = "hostcall devices"

_thread = threading.local()


@dataclasses.dataclass(frozen=True)
class Place:
    """The part of one device in a joint call: the number of its shard, a tensor<i32> in MLIR."""

    # The numbers are those of this process, if the call is spread over several.
    shard: Any
    shards: int
    devices: int
    spread: _processes.Spread | None = None


def can_be_made(platforms: Sequence[str]) -> bool:
    """Return whether the devices of programs for these platforms can make a call together."""
    return tuple(platforms) == ("cpu",)


def lower_for_all(context: Any, operands: Sequence[Any], bind: Callable[..., Any]) -> Sequence[Any]:
    """Lower a call with whole arrays in a program whose arrays XLA divides among devices."""
    # `bind` makes the call with arrays, where each device runs a program of its own.
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


def place_of(context: Any, joint: Joint | None) -> Place | None:
    """Return the part of a device in a call, joint or its own; None for a lone device."""
    axis_context = context.module_context.axis_context
    if not isinstance(axis_context, mlir.SPMDAxisContext) or axis_context.mesh.size == 1:
        return None
    mesh = axis_context.mesh
    if joint is None:
        return Place(_number(context, lambda: 0), 1, 1)
    axes = joint.axes
    spread = _processes.spread(mesh, axes, joint.device)
    if spread is not None:
        number = functools.partial(_processes.number, spread)
        return Place(_number(context, number), *spread.count(), spread)
    shard = _number(context, lambda: jax.lax.axis_index(axes) if axes else 0)
    return Place(shard, math.prod(mesh.shape[axis] for axis in axes), mesh.size)


def _number(context: Any, compute: Callable[[], Any]) -> object:
    def number() -> list[Any]:
        return [jnp.int32(compute())]

    # The tokens order the call alone, so the computation of its shard number gets none.
    inner = dataclasses.replace(context, avals_in=[], tokens_in=mlir.TokenSet({}), tokens_out=None)
    (shard,) = mlir.lower_fun(number)(inner)
    return shard


def marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function`, for which several devices wait, and mark its thread while it runs."""

    def called(*arrays: Any, **out: Any) -> object:
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


def not_together(description: str, platforms: Sequence[str]) -> NotImplementedError:
    """Return the error of a call that the devices of the program cannot make together."""
    return NotImplementedError(
        f"{description}: the devices of a program make one call together if it says sharding=, or "
        f"has a side effect. They can in a program for CPUs; this program is for "
        f"{', '.join(platforms)}. Call the function in jax.shard_map, once on each device."
    )

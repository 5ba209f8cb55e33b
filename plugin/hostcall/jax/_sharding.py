"""The option `sharding=` of `hostcall.jax.call`, for programs for several devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

# JAX's Mesh or AbstractMesh; hostcall uses the attributes that both have.
Mesh = Any

_FORMS = (
    "sharding has to be jax.P() or a jax.sharding.SingleDeviceSharding, for one call with whole "
    'arrays; a jax.NamedSharding(mesh, jax.P("axis")), or jax.P("axis") under jax.set_mesh, for a '
    "call for each shard; or a pair of such, for the arguments and for the results"
)


@dataclasses.dataclass(frozen=True)
class Division:
    """The division of a call's arrays among devices: a PartitionSpec for each argument and result.

    Without axes that divide arrays there is no mesh.
    """

    mesh: Mesh | None
    arguments: Sequence[Any]
    results: Sequence[Any]
    axes: tuple[str, ...]


def read(sharding: Any, args: Any, result: Any, place: str) -> Division:
    """Return the division that `sharding`, as of `hostcall.jax.call`, declares for a call.

    `args` and `result` are structures of objects with a shape.

    Raises:
      TypeError: when `sharding` has an unknown form.
      ValueError: when it cannot divide the arrays.
    """
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
        return Division(None, arguments, results, ())
    mesh = _mesh(given, place)
    axes = tuple(axis for axis in mesh.axis_names if axis in used)
    if unknown := used - {*axes}:
        raise ValueError(
            f"{place}: sharding names {sorted(unknown)}, and the axes of the mesh are "
            f"{list(mesh.axis_names)}."
        )
    division = Division(mesh, arguments, results, axes)
    _check(division, args, result, place)
    return division


def bind(
    division: Division,
    call: Callable[..., list[Any]],
    arrays: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
) -> list[Any]:
    """Return the results of a call that devices make together.

    `arrays` and `results` are whole. `call` takes those of a device, and `joint` of
    `_primitive.bind`.
    """
    if division.mesh is None:
        return call(arrays, results, ())
    mesh = division.mesh
    shards = [
        jax.ShapeDtypeStruct(
            jax.sharding.NamedSharding(mesh, spec).shard_shape(result.shape), result.dtype
        )
        for result, spec in zip(results, division.results, strict=True)
    ]

    def on_each(*local: Any) -> list[Any]:
        return call(local, shards, division.axes)

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


def _leaves(given: Any, of: Any, place: str) -> list[Any]:
    """Return a sharding for each leaf of a structure; a given one may stand for whole branches."""
    try:
        leaves: list[Any] = jax.tree.leaves(jax.tree.broadcast(given, of))
    except ValueError as error:
        raise ValueError(
            f"{place}: sharding is not of the structure of the arrays: {error}"
        ) from error
    return leaves


def _without_none(tree: Any) -> Any:
    """Replace None by an empty spec, since JAX takes None for a structure without leaves."""
    whole = jax.sharding.PartitionSpec()
    return jax.tree.map(
        lambda leaf: whole if leaf is None else leaf, tree, is_leaf=lambda leaf: leaf is None
    )


def _spec(leaf: object, place: str) -> Any:
    if isinstance(leaf, jax.sharding.SingleDeviceSharding):
        return jax.sharding.PartitionSpec()
    if isinstance(leaf, jax.sharding.NamedSharding):
        return leaf.spec
    if isinstance(leaf, jax.sharding.PartitionSpec):
        return leaf
    raise TypeError(f"{place}: {_FORMS}. {leaf!r} is not one of these.")


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


def _check(division: Division, args: Any, result: Any, place: str) -> None:
    for what, leaves, specs in (
        ("argument", jax.tree.leaves(args), division.arguments),
        ("result", jax.tree.leaves(result), division.results),
    ):
        for leaf, spec in zip(leaves, specs, strict=True):
            _check_divides(leaf.shape, spec, division.mesh, f"{place}: {what} {list(leaf.shape)}")
            missing = {*division.axes}.difference(*_axes(spec))
            if what == "result" and missing:
                raise ValueError(
                    f"{place}: a result of shape {list(leaf.shape)} has no sharding along "
                    f"{sorted(missing)}, along which the function is called once for each shard: "
                    "nobody could say whose result it is. Give each call a row of its own in it, "
                    "and sharding=(of_arguments, of_results)."
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
                f"{what} cannot be divided by {spec}: {size} is no multiple of {shards}."
            )

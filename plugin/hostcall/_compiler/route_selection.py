"""The choice of the route of a script op, with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from hostcall._ops import lookup, requested_routes, result_contract, result_shapes
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._ops.result_shapes import with_consumers
from hostcall._ops.structures import Spec, merge
from hostcall._tf.graph import attributes, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import NodeDef
from hostcall_runtime._errors import LoweringError

# Values that cannot enter an XLA program, or leave it.
HOST_DTYPES = frozenset({tf.string.as_datatype_enum, tf.variant.as_datatype_enum})


@dataclasses.dataclass(frozen=True)
class Choice:
    """The route of a script op."""

    route: str  # "custom_call" or "partition"
    reason: str  # the reason for the route, in words for the user
    # Whether it is partitioned because the shape of a result is not known.
    wants_shape: bool = False
    # Whether it is partitioned because of an op that a result of bounded size reaches.
    is_bounded: bool = False
    # Whether it is partitioned for its strings alone, so that a region can hold it.
    fits_region: bool = False


def choose(node: NodeDef) -> Choice:
    """Return the route of a script op, by its NodeDef and its function if this process has it."""
    asked = requested_routes.asked(node)
    if asked == requested_routes.PARTITION:
        return Choice(requested_routes.PARTITION, "route='partition' was asked for")
    if asked == requested_routes.CUSTOM_CALL:
        return Choice(requested_routes.CUSTOM_CALL, "route='custom_call' was asked for")
    if refusal := protos.text(node, attributes.REFUSED):
        return Choice(requested_routes.PARTITION, refusal)
    if obstacle := _obstacle(node):
        return Choice(
            requested_routes.PARTITION,
            obstacle,
            is_bounded=attributes.BLOCKER in node.attr,
            fits_region=_fits_region(node),
        )
    spec = lookup.spec_of(node)
    free = result_contract.shape_agnostic_of(node)
    unknown = {
        index: said
        for index, said in unknown_results(spec, known_results(spec, node)).items()
        if index not in free
    }
    if not unknown:
        return Choice(
            requested_routes.CUSTOM_CALL,
            "the shapes of its results are known, or a shape function gives them",
        )
    index, said = next(iter(unknown.items()))
    reason = f"the shape of result {index} is not known: {said.shape}"
    return Choice(requested_routes.PARTITION, reason, wants_shape=True)


def without_host_calls(node: NodeDef, reason: str) -> Choice:
    """Return the route where a device cannot call; raise a LoweringError for a custom call."""
    if requested_routes.asked(node) == requested_routes.CUSTOM_CALL:
        raise _no_custom_call(node, reason, "it is called between compiled clusters.")
    choice, wanted = choose(node), requested_routes.PARTITION
    return choice if choice.route == wanted else Choice(wanted, reason)


def _obstacle(node: NodeDef) -> str:
    for dtype in (*node.attr["Tin"].list.type, *node.attr["Tout"].list.type):
        if dtype in HOST_DTYPES | defs.UNKNOWN_TO_XLA:
            return f"a {tf.as_dtype(dtype).name} cannot enter or leave an XLA program"
    return protos.text(node, attributes.BLOCKER)


def is_on_host(node: NodeDef) -> bool:
    """Return whether a script op runs between compiled clusters."""
    return choose(node).route == requested_routes.PARTITION


def check_forced(node: NodeDef) -> None:
    """Raise a LoweringError if a script op must be a custom call, but cannot be one."""
    # The check ignores shapes: some become known only when XLA compiles.
    obstacle = _obstacle(node)
    if obstacle and requested_routes.asked(node) == requested_routes.CUSTOM_CALL:
        raise _no_custom_call(
            node,
            obstacle,
            "it is called all the same: by the program, if the shapes of its numbers are known, or "
            "between compiled clusters.",
        )


def _no_custom_call(node: NodeDef, reason: str, instead: str) -> LoweringError:
    described = getattr(lookup.entry_of(node), "description", f"op '{node.name}'")
    return LoweringError(
        f"hostcall: {described} cannot be a custom call, which route='custom_call' asks for: "
        f"{reason}. With route='auto' {instead}"
    )


def _fits_region(node: NodeDef) -> bool:
    """Return whether XLA may know the shapes of all results of an op that it can hold."""
    spec = lookup.spec_of(node)
    if spec is None or attributes.BLOCKER in node.attr:
        return False
    dtypes = {*node.attr["Tin"].list.type, *node.attr["Tout"].list.type}
    if dtypes & defs.UNKNOWN_TO_XLA:
        return False
    unknown = unknown_results(spec, known_results(spec, node)).values()
    return all(said.dtype.as_datatype_enum in HOST_DTYPES for said in unknown)


def known_results(spec: CallbackSpec | None, node: NodeDef) -> list[Spec | None]:
    """Return the specs that tracing knows of the user's results; None for a contradiction."""
    # The lowering reports contradictions to the user.
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    if spec is not None:
        dtypes = dtypes[: len(spec.outputs.dtypes)]  # the others are hidden
    traced = result_shapes.traced(node)
    known: list[Spec | None] = []
    for index, dtype in enumerate(dtypes):
        merged: Spec = spec.static_specs[index] if spec is not None else tf.TensorSpec(None, dtype)
        try:
            shape = traced[index] if index < len(traced) else None
            said = merge(merged, tf.TensorSpec(shape, dtype))
            known.append(said if spec is None else with_consumers(spec, index, said))
        except ValueError:
            known.append(None)
    return known


def unknown_results(spec: CallbackSpec | None, known: Sequence[Spec | None]) -> dict[int, Spec]:
    """Return the results of unknown shape that no shape function may know when XLA compiles."""
    return {
        index: said
        for index, said in enumerate(known)
        if not (spec is not None and spec.pending[index])
        and isinstance(said, tf.TensorSpec)
        and not said.shape.is_fully_defined()
    }

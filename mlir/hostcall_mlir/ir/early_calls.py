"""The custom calls of a host call that goes on while its program does.

    %handle = stablehlo.custom_call @hostcall_start(%x) {has_side_effect = true, …,
      backend_config = {callback = "pkg.mod:fn", …, results = array<i64: 11, 1, 3>}}
    %gate = stablehlo.custom_call @hostcall_gate(%handle, …) {…}
    %r = stablehlo.custom_call @hostcall_done(%handle, %gate) {has_side_effect = true, …}

The first begins the call, and has its operands and attributes. `results` has for each result the
element type (FFI's code of it), the rank and the sizes. The gate does nothing, but XLA computes
what it takes before anything that takes its result. The last has the results of the call. Both
have side effects, as XLA must neither repeat nor drop nor merge them. A process with handlers for
them can run them, and no other: they are in no program that is written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.jaxlib_names import attribute_of, attributes_of

START, GATE, DONE = "hostcall_start", "hostcall_gate", "hostcall_done"

# FFI's codes of the element types.
_CODES = {
    "i1": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "ui8": 6, "ui16": 7, "ui32": 8, "ui64": 9,
    "f16": 10, "f32": 11, "f64": 12, "complex<f32>": 15, "bf16": 16, "complex<f64>": 18,
    "f8E5M2": 19, "f8E4M3FN": 20, "f8E4M3B11FNUZ": 23, "f8E5M2FNUZ": 24, "f8E4M3FNUZ": 25,
    "f8E4M3": 28, "f8E3M4": 29, "f8E8M0FNU": 33,
}  # fmt: skip

# Which of the attributes of a call only say something of the values that it has itself.
_OF_RESULTS = ("result_layouts", "sdy.sharding", "mhlo.sharding", "output_operand_aliases")


def config_of(call: ir.Operation) -> dict[str, ir.Attribute]:
    """The entries of a call's configuration, as JAX writes it or we; empty where it has none."""
    config = attribute_of(call, _config_name(call))
    return {entry.name: entry.attr for entry in config} if isinstance(config, ir.DictAttr) else {}


def is_array(type_: ir.Type) -> bool:
    """Whether the custom calls can take and return values of the type."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return False
    return custom_calls.element_of(type_) in _CODES


def start(call: ir.Operation) -> ir.Value:
    """Begins a call, at the current insertion point; returns its handle."""
    numbers = [n for type_ in custom_calls.result_types(call) for n in _described(type_)]
    config = config_of(call) | {"results": ir.DenseI64ArrayAttr.get(numbers)}
    kept = {n: value for n, value in attributes_of(call).items() if n not in _OF_RESULTS}
    attributes = kept | _attributes(call, START, config)
    if "operand_layouts" in attributes:
        attributes["result_layouts"] = _scalar_layouts(1)
    return _create([_handle_type()], call.operands, attributes, has_side_effect=True)[0]


def gate(awaited: Sequence[ir.Value], like: ir.Operation) -> ir.Value:
    """A gate behind some values, at the current insertion point.

    Args:
      awaited: what comes before the gate.
      like: a host call, whose way of writing attributes it takes.
    """
    attributes = _attributes(like, GATE, {})
    return _create([_handle_type()], awaited, attributes, has_side_effect=False)[0]


def done(call: ir.Operation, handle: ir.Value, gate_value: ir.Value) -> Sequence[ir.Value]:
    """Takes the results of a call that has begun, at the current insertion point."""
    attributes = _attributes(call, DONE, {})
    for name in _OF_RESULTS:
        if (attribute := attribute_of(call, name)) is not None:
            attributes[name] = attribute
    if "result_layouts" in attributes:
        attributes["operand_layouts"] = _scalar_layouts(2)
    types = [result.type for result in call.results]
    return _create(types, [handle, gate_value], attributes, has_side_effect=True)


def _config_name(call: ir.Operation) -> str:
    return custom_calls.OF_JAX if custom_calls.OF_JAX in call.attributes else "backend_config"


def _described(type_: ir.Type) -> list[int]:
    tensor = ir.RankedTensorType(type_)
    return [_CODES[custom_calls.element_of(type_)], tensor.rank, *tensor.shape]


def _attributes(
    call: ir.Operation, target: str, config: Mapping[str, ir.Attribute]
) -> dict[str, ir.Attribute]:
    """The attributes of a custom call, written as those of `call` are."""
    names = ("api_version", "backend_config")
    found = {name: call.attributes[name] for name in names if name in call.attributes}
    found[_config_name(call)] = ir.DictAttr.get(dict(config))
    return found | {"call_target_name": ir.StringAttr.get(target)}


def _create(
    types: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    attributes: dict[str, ir.Attribute],
    has_side_effect: bool,
) -> Sequence[ir.Value]:
    if has_side_effect:
        attributes["has_side_effect"] = ir.BoolAttr.get(True)
    return [*ir.Operation.create("stablehlo.custom_call", types, operands, attributes).results]


def _handle_type() -> ir.Type:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))


def _scalar_layouts(count: int) -> ir.Attribute:
    none = ir.DenseElementsAttr.get(np.zeros(0, np.int64), type=ir.IndexType.get())
    return ir.ArrayAttr.get([none] * count)

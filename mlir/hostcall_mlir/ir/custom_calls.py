"""The custom calls `@hostcall` and `@hostcall_start`: building, reading and changing them.

docs/passes.md describes them. `callback` is a callback id in a process, and a qualified name in an
exported program. Results are the op's own, or one tuple of them, as TensorFlow has them.

`@hostcall_start` begins a call, and has its operands and attributes. Its `results` hold for each
result FFI's code of the element type, the rank and the sizes. `@hostcall_gate` does nothing, but
XLA computes its operands before any op that takes its result. `@hostcall_done` has the results of
the call. Start and done have side effects, since XLA must neither repeat nor drop nor merge them.

`@hostcall_raise` raises the error of a number, and `@hostcall_any` finds the values for which there
is one: see passes/value_errors.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.jaxlib_names import attribute_of, attributes_of
from hostcall_runtime._registry import DTYPES

TARGET = "hostcall"
RAISE, ANY = "hostcall_raise", "hostcall_any"
# JAX's place for the attributes of typed FFI calls; its `backend_config` is empty.
OF_JAX = "mhlo.backend_config"
ARRAYS = ("dynamic_operands", "dynamic_results", "sub_byte_operands", "sub_byte_results")


def _element(dtype: str) -> str:
    """Return MLIR's element type for a dtype of NumPy's or ml_dtypes': f8E4M3FN, complex<f32>."""
    if dtype == "bool":
        return "i1"
    if dtype.startswith("complex"):
        return f"complex<f{int(dtype.removeprefix('complex')) // 2}>"
    kind, _, rest = dtype.partition("_")
    return kind.replace("float", "f").replace("int", "i") + rest.upper()


# By the name of each dtype of the runtime, MLIR's element type.
ELEMENTS = {name: _element(name) for name in (np.dtype(dtype).name for _, dtype, _ in DTYPES)}
# The 8-bit element types of buffers that hold sub-byte values, which XLA packs.
WIDE = {"i4": "i8", "ui4": "ui8", "i2": "i8", "ui2": "ui8", "f4E2M1FN": "f8E4M3FN"}
# The runtime's codes of the element types.
_CODES = {ELEMENTS[np.dtype(dtype).name]: code for code, dtype, _ in DTYPES}
SUB_BYTE = {_CODES[element]: element for element in WIDE}

_QUALIFIED = re.compile(
    r"[^\W\d]\w*(\.[^\W\d]\w*)*:([^\W\d]\w*|<lambda>)(\.([^\W\d]\w*|<locals>|<lambda>))*"
)
# The names that pipelines and MLIR's text can hold. A function may have several: "solver#2".
_NAME = re.compile(r"""[^\s,=#"'(){}\[\]\\\x00-\x1f]+(#[1-9]\d*)?""")


def walk(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """Return all ops in `root`, itself included, each before the ops in its regions."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def find_artifact_ops(ops: Iterable[ir.Operation]) -> Iterator[ir.Operation]:
    """Yield the ops in the form of portable artifacts, in which host calls are not recognized."""
    return (op for op in ops if op.name.startswith("vhlo."))


def target_of(op: ir.Operation) -> str | None:
    """Return the target of a custom call, None for other ops."""
    if op.name != "stablehlo.custom_call":
        return None
    return str(ir.StringAttr(op.attributes["call_target_name"]).value)


def targets_in(root: ir.Module | ir.Operation) -> set[str]:
    """Return the targets of all custom calls in `root`."""
    return {target for op in walk(root) if (target := target_of(op)) is not None}


def is_host_call(op: ir.Operation) -> bool:
    """Return whether the op is a custom call `@hostcall`."""
    return target_of(op) == TARGET


def runs_on_host(op: ir.Operation) -> bool:
    """Return whether a partitioned program runs the op, a custom call, on the host."""
    return target_of(op) in (TARGET, RAISE)


def host_calls(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """Return all custom calls `@hostcall` in `root`."""
    return [op for op in walk(root) if is_host_call(op)]


def has_side_effect(op: ir.Operation) -> bool:
    """Return the attribute of a custom call, False if it is absent."""
    attribute = attribute_of(op, "has_side_effect")
    return attribute is not None and ir.BoolAttr(attribute).value


def config_of(op: ir.Operation, name: str = "backend_config") -> dict[str, ir.Attribute]:
    """Return the entries of a call's attribute, empty if it is not a dictionary."""
    config = attribute_of(op, name)
    return {entry.name: entry.attr for entry in config} if isinstance(config, ir.DictAttr) else {}


def callback_of(op: ir.Operation) -> int | str | None:
    """Return the callback id or the name in a call, None if it has neither."""
    callback = config_of(op).get("callback")
    if not isinstance(callback, ir.IntegerAttr | ir.StringAttr):
        return None
    value: int | str = callback.value
    return value


def set_callback(op: ir.Operation, callback: int | str) -> None:
    """Replace the callback of a call."""
    config = config_of(op) | {"callback": callback_attribute(callback, op.context)}
    op.attributes["backend_config"] = ir.DictAttr.get(config, op.context)


def api_version() -> ir.Attribute:
    """Return the `api_version` of typed FFI calls, in the current context."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4)


def make_config(
    callback: int | str, context: ir.Context, arrays: Mapping[str, Sequence[int]]
) -> ir.DictAttr:
    """Return a `backend_config`; arrays that are not given are empty."""
    config = {
        name: ir.DenseI64ArrayAttr.get(list(arrays.get(name, ())), context) for name in ARRAYS
    }
    return ir.DictAttr.get({"callback": callback_attribute(callback, context), **config}, context)


def callback_attribute(callback: int | str, context: ir.Context) -> ir.Attribute:
    """Return the attribute for a callback id or a name."""
    if isinstance(callback, str):
        return ir.StringAttr.get(callback, context)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), callback)


def is_name(text: str) -> bool:
    """Return whether a text can be a callback's name: `module:qualname`, or one of the user's."""
    return _NAME.fullmatch(text) is not None


def is_qualified(text: str) -> bool:
    """Return whether a text has the form `module:qualname`, by which a function can be imported."""
    return _QUALIFIED.fullmatch(text) is not None


def restore_arrays(op: ir.Operation) -> None:
    """Restore the arrays of a call; StableHLO's reader leaves tensors in their place."""
    for attribute in ("backend_config", OF_JAX):
        config = config_of(op, attribute)
        for name in ARRAYS:
            tensor = config.get(name)
            if isinstance(tensor, ir.DenseIntElementsAttr) and _is_of_numbers(tensor.type):
                config[name] = ir.DenseI64ArrayAttr.get([*map(int, tensor)], op.context)
        if config:
            op.attributes[attribute] = ir.DictAttr.get(config, op.context)


def _is_of_numbers(type_: ir.Type) -> bool:
    return str(type_.element_type) == "i64" and type_.rank == 1


def pairs(array: ir.Attribute | None) -> list[tuple[int, int]]:
    """Return the pairs that one of `ARRAYS` holds."""
    numbers = [*ir.DenseI64ArrayAttr(array)] if array is not None else []
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


def result_types(op: ir.Operation) -> list[ir.Type]:
    """Return the types of a call's results, or of its tuple's elements."""
    types = [result.type for result in op.results]
    if len(types) == 1 and isinstance(types[0], ir.TupleType):
        return [types[0].get_type(i) for i in range(types[0].num_types)]
    return types


def element_of(type_: ir.Type) -> str:
    """Return the element type of a tensor type, as MLIR writes it, and "" for other types."""
    return str(type_.element_type) if isinstance(type_, ir.RankedTensorType) else ""


def constant(value: np.ndarray, type_: ir.Type) -> ir.Value:
    """Create a constant of a tensor type, which fits the array, at the current insertion point."""
    element = ir.RankedTensorType(type_).element_type
    if isinstance(element, ir.IntegerType) and 1 < element.width < 8:
        # MLIR stores these numbers in bytes, and accepts no array of them.
        wide, stored = ("i8", np.int8) if element.is_signless else ("ui8", np.uint8)
        wide_type = ir.RankedTensorType.get(value.shape, ir.Type.parse(wide))
        return stablehlo.convert(type_, constant(value.astype(stored), wide_type))
    if value.dtype.kind == "V":  # of ml_dtypes, which Python's buffers do not support
        value = value.view({1: np.uint8, 2: np.uint16}[value.dtype.itemsize])
    return stablehlo.constant(private.elements_attribute(value, element))


def padded(value: ir.Value) -> ir.Value:
    """Pad a value to its bounds; the elements behind the true sizes are arbitrary."""
    left = private.bounds_of(value.type)
    scalar = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    for dim, bound in [*left.items()]:
        del left[dim]
        value = with_size(value, dim, constant(np.array(bound, np.int32), scalar), left)
    return value


def with_size(value: ir.Value, dim: int, size: ir.Value, bounds: Mapping[int, int]) -> ir.Value:
    """Set the true size of a dimension, a tensor<i32>; `bounds` are those of the result."""
    type_ = private.bounded_type(private.padded_type(value.type), bounds)
    return stablehlo.set_dimension_size(value, size, dim, results=[type_])


START, GATE, DONE = "hostcall_start", "hostcall_gate", "hostcall_done"

# The attributes of a call that only describe its own results.
_OF_RESULTS = ("result_layouts", "sdy.sharding", "mhlo.sharding", "output_operand_aliases")


def early_config_of(call: ir.Operation) -> dict[str, ir.Attribute]:
    """Return the entries of a call's configuration, in JAX's form or ours; empty if it has none."""
    return config_of(call, _config_name(call))


def is_array(type_: ir.Type) -> bool:
    """Return whether the custom calls can take and return values of the type."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return False
    element = element_of(type_)
    return element in _CODES and element not in WIDE


def start(call: ir.Operation) -> ir.Value:
    """Begin a call, at the current insertion point, and return its handle."""
    numbers = [n for type_ in result_types(call) for n in _described(type_)]
    config = early_config_of(call) | {"results": ir.DenseI64ArrayAttr.get(numbers)}
    kept = {n: value for n, value in attributes_of(call).items() if n not in _OF_RESULTS}
    attributes = kept | _attributes(call, START, config)
    if "operand_layouts" in attributes:
        attributes["result_layouts"] = _scalar_layouts(1)
    return _create_early([_handle_type()], call.operands, attributes)[0]


def gate(awaited: Sequence[ir.Value], like: ir.Operation) -> ir.Value:
    """Create a gate behind some values, at the current insertion point, in the form of a call."""
    attributes = _attributes(like, GATE, {})
    return _create_early([_handle_type()], awaited, attributes)[0]


def done(call: ir.Operation, handle: ir.Value, gate_value: ir.Value) -> Sequence[ir.Value]:
    """Take the results of a call that has begun, at the current insertion point."""
    kept = {n: value for n, value in attributes_of(call).items() if n in _OF_RESULTS}
    attributes = kept | _attributes(call, DONE, {})
    if "result_layouts" in attributes:
        attributes["operand_layouts"] = _scalar_layouts(2)
    types = [result.type for result in call.results]
    return _create_early(types, [handle, gate_value], attributes)


def _config_name(call: ir.Operation) -> str:
    return OF_JAX if OF_JAX in call.attributes else "backend_config"


def _described(type_: ir.Type) -> list[int]:
    tensor = ir.RankedTensorType(type_)
    return [_CODES[element_of(type_)], tensor.rank, *tensor.shape]


def _attributes(
    call: ir.Operation, target: str, config: Mapping[str, ir.Attribute]
) -> dict[str, ir.Attribute]:
    """Return the attributes of a custom call, in the form that `call` has."""
    names = ("api_version", "backend_config")
    found = {name: call.attributes[name] for name in names if name in call.attributes}
    found[_config_name(call)] = ir.DictAttr.get(dict(config))
    if target != GATE:
        found["has_side_effect"] = ir.BoolAttr.get(True)
    return found | {"call_target_name": ir.StringAttr.get(target)}


def _create_early(
    types: Sequence[ir.Type], operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute]
) -> Sequence[ir.Value]:
    return [*ir.Operation.create("stablehlo.custom_call", types, operands, attributes).results]


def _handle_type() -> ir.Type:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))


def _scalar_layouts(count: int) -> ir.Attribute:
    none = ir.DenseElementsAttr.get(np.zeros(0, np.int64), type=ir.IndexType.get())
    return ir.ArrayAttr.get([none] * count)

"""The custom calls `@hostcall`: what they look like, and how all passes read and write them.

    %r, %t1 = stablehlo.custom_call @hostcall(%x, …sizes…, %t0) {
      api_version = 4 : i32, has_side_effect = true,
      backend_config = {callback = "pkg.mod:fn",
                        dynamic_operands = array<i64>, dynamic_results = array<i64>,
                        sub_byte_operands = array<i64>, sub_byte_results = array<i64>}}

`callback` says which Python function is called: in a process, an i64, its callback id in the
registry of that process; in an exported program, a string, its qualified name: `module:qualname`
or one that somebody has chosen. The arrays hold pairs. `dynamic_*` pair an operand or result with a
bounded dimension, and for each pair a true size, tensor<i32>, follows the values; `sub_byte_*` pair
an operand or result whose buffer has an 8-bit type with the element type (FFI's code of it) that
the function sees. An ordered call takes a token as its last operand and returns one as its last
result. The results are the op's own, or one tuple of them, as TensorFlow has it. A call without
`has_side_effect` is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir.jaxlib_names import attribute_of

TARGET = "hostcall"
# Where JAX writes the attributes of typed FFI calls, with an empty `backend_config`.
OF_JAX = "mhlo.backend_config"
ARRAYS = ("dynamic_operands", "dynamic_results", "sub_byte_operands", "sub_byte_results")
# The sub-byte element types: FFI's code to MLIR's type. XLA packs them. The last three codes are
# ours: the runtime is not to know XLA's (26, 27, 32), or it would read packed buffers beyond their
# ends.
SUB_BYTE = {21: "i4", 22: "ui4", 60: "i2", 61: "ui2", 62: "f4E2M1FN"}
# The element types of the buffers that hold the same values.
WIDE = {"i4": "i8", "ui4": "ui8", "i2": "i8", "ui2": "ui8", "f4E2M1FN": "f8E4M3FN"}

_QUALIFIED = re.compile(
    r"[^\W\d]\w*(\.[^\W\d]\w*)*:([^\W\d]\w*|<lambda>)(\.([^\W\d]\w*|<locals>|<lambda>))*"
)
# What pipelines and MLIR's text can hold. One function may have several entries: "solver#2".
_NAME = re.compile(r"""[^\s,=#"'(){}\[\]\\\x00-\x1f]+(#[1-9]\d*)?""")


def walk(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """All ops in `root`, itself included, each before what its regions hold."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def target_of(op: ir.Operation) -> str | None:
    """The target of a custom call, None for other ops."""
    if op.name != "stablehlo.custom_call":
        return None
    target: str = ir.StringAttr(op.attributes["call_target_name"]).value
    return target


def is_host_call(op: ir.Operation) -> bool:
    """Whether the op is a custom call `@hostcall`."""
    return target_of(op) == TARGET


def host_calls(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """All custom calls `@hostcall` in `root`."""
    return [op for op in walk(root) if is_host_call(op)]


def has_side_effect(op: ir.Operation) -> bool:
    """What a custom call's attribute says, False where there is none."""
    attribute = attribute_of(op, "has_side_effect")
    return attribute is not None and ir.BoolAttr(attribute).value


def config_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """The entries of a call's `backend_config`, empty where it is no dictionary."""
    config = attribute_of(op, "backend_config")
    if not isinstance(config, ir.DictAttr):
        return {}
    return {entry.name: entry.attr for entry in config}


def callback_of(op: ir.Operation) -> int | str | None:
    """The callback id or the name of the function that a call calls, None where it has neither."""
    callback = config_of(op).get("callback")
    if not isinstance(callback, ir.IntegerAttr | ir.StringAttr):
        return None
    value: int | str = callback.value
    return value


def set_callback(op: ir.Operation, callback: int | str) -> None:
    """Has the call call another function."""
    config = config_of(op) | {"callback": callback_attribute(callback, op.context)}
    op.attributes["backend_config"] = ir.DictAttr.get(config, op.context)


def api_version() -> ir.Attribute:
    """The attribute of typed FFI calls, in the current context."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4)


def make_config(
    callback: int | str, context: ir.Context, arrays: Mapping[str, Sequence[int]]
) -> ir.DictAttr:
    """A `backend_config`; arrays that are not given are empty."""
    config = {
        name: ir.DenseI64ArrayAttr.get(list(arrays.get(name, ())), context) for name in ARRAYS
    }
    return ir.DictAttr.get({"callback": callback_attribute(callback, context), **config}, context)


def callback_attribute(callback: int | str, context: ir.Context) -> ir.Attribute:
    """The attribute for a callback id or a name."""
    if isinstance(callback, str):
        return ir.StringAttr.get(callback, context)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), callback)


def is_name(text: str) -> bool:
    """Whether it has the form of a qualified name: `module:qualname`, or what somebody has chosen.

    Either may have a number behind it, as in `solver#2`.
    """
    return _NAME.fullmatch(text) is not None


def is_qualified(text: str) -> bool:
    """Whether it has the form `module:qualname`, by which a function can be imported."""
    return _QUALIFIED.fullmatch(text) is not None


def restore_arrays(op: ir.Operation) -> None:
    """Makes arrays of the tensors that a portable artifact has in the place of those of a call."""
    config = config_of(op)
    for name in ARRAYS:
        tensor = config.get(name)
        if isinstance(tensor, ir.DenseIntElementsAttr) and str(tensor.type.element_type) == "i64":
            config[name] = ir.DenseI64ArrayAttr.get([*map(int, tensor)], op.context)
    if config:
        op.attributes["backend_config"] = ir.DictAttr.get(config, op.context)


def pairs(array: ir.Attribute | None) -> list[tuple[int, int]]:
    """The pairs that one of `ARRAYS` holds."""
    numbers = [*ir.DenseI64ArrayAttr(array)] if array is not None else []
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


def result_types(op: ir.Operation) -> list[ir.Type]:
    """The types of a call's results, those of its tuple where it has one."""
    types = [result.type for result in op.results]
    if len(types) == 1 and isinstance(types[0], ir.TupleType):
        return [types[0].get_type(i) for i in range(types[0].num_types)]
    return types


def element_of(type_: ir.Type) -> str:
    """The element type of a tensor's type, as MLIR writes it; nothing for other types."""
    return str(type_.element_type) if isinstance(type_, ir.RankedTensorType) else ""

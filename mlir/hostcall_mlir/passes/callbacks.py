"""Passes that rewrite the callbacks of calls: `hostcall-from-jax`, `hostcall-name` and its inverse.

docs/passes.md says what they do. JAX's own custom calls hold the index of the function in the
program's list of callbacks. JAX has the token of an ordered call as the first operand, hostcall as
the last. JAX also writes the attributes of `hostcall.jax`'s calls in a place of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import PassError, report_all
from hostcall_mlir.ir.jaxlib_names import attributes_of, is_token
from hostcall_mlir.passes import Options, Pass, read_map

# The second is that of jax.debug.callback(partitioned=True), which gets the shard of each device.
_TARGETS = {"xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback"}
# The target of hostcall.jax in programs for several devices.
_JOINT = "hostcall_joint"
_FOREIGN = re.compile(r"xla_(ffi|buffer)_(partitioned_)?python_\w+_callback")

# The codes of FFI and hostcall for the element types that go in and out as 8-bit ones.
_CODES = {type_: code for code, type_ in custom_calls.SUB_BYTE.items()}

_T = TypeVar("_T")


def calls_of_jax(module: ir.Module) -> list[ir.Operation]:
    """Return the calls of JAX's own callbacks that a module for one CPU makes."""
    return [op for op in custom_calls.walk(module) if custom_calls.target_of(op) in _TARGETS]


def _run(module: ir.Module, options: Options) -> None:
    given = _read_ids(options, "callbacks", FROM_JAX.name)
    for text in given.values():
        if not (text.isascii() and text.isdecimal()):
            raise PassError(f"{FROM_JAX.name}: '{text}' of option 'callbacks' is not a callback id")
    problems = []
    for op in custom_calls.walk(module):
        target = custom_calls.target_of(op) or ""
        if target == custom_calls.TARGET and custom_calls.OF_JAX in op.attributes:
            _respell(op)
            continue
        if target not in {*_TARGETS, _JOINT} and not _FOREIGN.fullmatch(target):
            continue
        if problem := _problem(op, target):
            problems.append((op, f"{FROM_JAX.name}: {problem}"))
            continue
        index = ir.IntegerAttr(custom_calls.early_config_of(op)["index"]).value
        _replace(op, int(given.get(index, index)))
    report_all(problems)


FROM_JAX = Pass(
    "hostcall-from-jax",
    "make JAX's own callbacks custom calls @hostcall",
    _run,
    {"callbacks": "callback ids for JAX's indices where they differ: 0=5,1=7"},
)


def _respell(op: ir.Operation) -> None:
    """Rewrite a call of hostcall's from JAX's form into the form of `custom_calls`."""
    op.attributes["api_version"] = custom_calls.api_version()
    op.attributes["backend_config"] = op.attributes[custom_calls.OF_JAX]
    del op.attributes[custom_calls.OF_JAX]


def _problem(op: ir.Operation, target: str) -> str | None:
    if target == _JOINT:
        return (
            f"'{target}' is a call that several devices make together, and host calls are made by "
            "one; lower the program for one device"
        )
    if target not in _TARGETS:
        return f"'{target}' is not a call of the CPU's; lower the program with platforms=('cpu',)"
    if not isinstance(custom_calls.early_config_of(op).get("index"), ir.IntegerAttr):
        return f"'{target}' without the index of a function in mhlo.backend_config"
    tokens = [[is_token(value.type) for value in side] for side in (op.operands, op.results)]
    if any(any(side[1:]) for side in tokens) or any(tokens[0]) != any(tokens[1]):
        return f"'{target}' with a token that is not its first operand and its first result"
    return None


def _replace(op: ir.Operation, callback: int) -> None:
    """Replace a call of JAX's by a call of hostcall's."""
    with ir.InsertionPoint(op), op.location:
        operands = [_convert(v, _wide(v.type)) for v in _token_last(op.operands, op.operands)]
        results = _token_last([*op.results], op.results)
        call = ir.Operation.create(
            "stablehlo.custom_call",
            [_wide(result.type) for result in results],
            operands,
            _attributes(op, callback),
        )
        for old, new in zip(results, call.results, strict=True):
            old.replace_all_uses_with(_convert(new, old.type))
    op.erase()


def _attributes(op: ir.Operation, callback: int) -> dict[str, ir.Attribute]:
    arrays = {
        "sub_byte_operands": _sub_byte_pairs(_token_last(op.operands, op.operands)),
        "sub_byte_results": _sub_byte_pairs(_token_last([*op.results], op.results)),
    }
    kept = attributes_of(op)
    kept.pop(custom_calls.OF_JAX, None)
    for name, values in (("operand_layouts", op.operands), ("result_layouts", op.results)):
        if name in kept:
            kept[name] = ir.ArrayAttr.get(_token_last([*ir.ArrayAttr(kept[name])], values))
    if "sdy.sharding" in kept and len(op.results) > 1:
        shardings = [*sdy.TensorShardingPerValueAttr(kept["sdy.sharding"]).shardings]
        last = _token_last(shardings, op.results)
        kept["sdy.sharding"] = sdy.TensorShardingPerValueAttr.get(last)
    return kept | {
        "call_target_name": ir.StringAttr.get(custom_calls.TARGET),
        "api_version": custom_calls.api_version(),
        "backend_config": custom_calls.make_config(callback, op.context, arrays),
    }


def _token_last(items: Sequence[_T], values: Sequence[ir.Value]) -> list[_T]:
    """Return the items, one for each value, with that of a leading token moved to the end."""
    items = [*items]
    return [*items[1:], items[0]] if len(values) and is_token(values[0].type) else items


def _sub_byte_pairs(values: Sequence[ir.Value]) -> list[int]:
    codes = [_CODES.get(custom_calls.element_of(value.type)) for value in values]
    return [n for i, code in enumerate(codes) if code is not None for n in (i, code)]


def _wide(type_: ir.Type) -> ir.Type:
    element = custom_calls.WIDE.get(custom_calls.element_of(type_))
    if element is None:
        return type_
    tensor = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get(tensor.shape, ir.Type.parse(element), tensor.encoding)


def _convert(value: ir.Value, type_: ir.Type) -> ir.Value:
    return value if value.type == type_ else stablehlo.convert(type_, value)


_OPTIONS = {"names": "3=pkg.mod:fn,4=pkg.mod:other", "file": 'a JSON object, {"3": "pkg.mod:fn"}'}


def _name(module: ir.Module, options: Options) -> None:
    names = _read_ids(options, "names", NAME.name)
    for name in names.values():
        if not custom_calls.is_name(name):
            raise PassError(
                f"{NAME.name}: '{name}' is not a name: module:qualname is one, or a word, with or "
                "without #2 behind it"
            )
    missing = f"{NAME.name}: no name is given for callback {{}}; add it to 'names'"
    _rename(module, names, missing, of_names=False)


def _resolve(module: ir.Module, options: Options) -> None:
    names = _read_ids(options, "names", RESOLVE.name)
    ids = {names[callback_id]: callback_id for callback_id in sorted(names, reverse=True)}
    missing = f"{RESOLVE.name}: no callback id is given for '{{}}'; add it to 'names'"
    _rename(module, ids, missing, of_names=True)


NAME = Pass("hostcall-name", "write qualified names in the place of callback ids", _name, _OPTIONS)
RESOLVE = Pass(
    "hostcall-resolve", "write callback ids in the place of qualified names", _resolve, _OPTIONS
)


def _rename(
    module: ir.Module, replacements: Mapping[Any, int | str], missing: str, of_names: bool
) -> None:
    """Replace the callbacks of calls, either all names or all others."""
    problems = []
    for op in custom_calls.host_calls(module):
        callback = custom_calls.callback_of(op)
        if isinstance(callback, str) != of_names:
            continue
        if callback in replacements:
            custom_calls.set_callback(op, replacements[callback])
        else:
            problems.append((op, missing.format(callback)))
    report_all(problems)


def _read_ids(options: Options, option: str, of: str) -> dict[int, str]:
    """Read a map like `read_map`, whose keys are callback ids."""
    entries = read_map(options, option, of)
    for key in entries:
        if not (key.isascii() and key.isdecimal()):
            raise PassError(f"{of}: '{key}' is not a callback id")
    return {int(key): value for key, value in entries.items()}

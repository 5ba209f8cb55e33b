"""What a program takes, returns and calls, by its MLIR, and whether its manifest says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, side_effects
from hostcall_mlir.ir.jaxlib_names import is_token
from hostcall_mlir.program.dtypes import name_of
from hostcall_mlir.program.manifest_schema import Call, Effect, Manifest, Spec
from hostcall_runtime._words import counted

# Calls of Python functions, of JAX's or TensorFlow's, and of native code, by numbers or addresses
# that mean something in one process alone.
_OF_ONE_PROCESS = re.compile(r"hostcall_native|xla_(ffi_|buffer_)?(partitioned_)?python_\w+")
# What waits for somebody who is not there.
_WAITING = {"stablehlo.infeed", "stablehlo.outfeed", "stablehlo.recv", "stablehlo.send"}


def spec_of(type_: ir.Type) -> Spec | None:
    """The spec of a tensor type, None where a size is not known, or NumPy has no such dtype."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return None
    dtype = name_of(type_.element_type)
    return None if dtype is None else Spec(dtype, tuple(type_.shape))


def call_of(op: ir.Operation, location: str | None = None) -> Call | None:
    """What a host call that `hostcall-check` has passed is like; None where a type has no spec."""
    config = custom_calls.config_of(op)
    operands = _specs([operand.type for operand in op.operands], config, "operands")
    results = _specs(custom_calls.result_types(op), config, "results")
    if operands is None or results is None:
        return None
    return Call(operands, results, _effect_of(op), location)


def mismatches(module: ir.Module, manifest: Manifest) -> Iterator[str]:
    """Where a module and its manifest differ, and what cannot be exported in one."""
    main = side_effects.functions(module).get("main")
    if main is None or not main.regions[0].blocks:
        yield "the program has no function @main"
        return
    type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    specs = [entry.spec for entry in manifest.inputs]
    yield from _differing("input", type_.inputs, specs)
    # Of bounded results @main returns all, and their sizes beside them.
    specs = [Spec(entry.spec.dtype, entry.spec.shape) for entry in manifest.outputs]
    yield from _differing("output", type_.results, specs)
    for op in custom_calls.walk(module):
        target = custom_calls.target_of(op) or ""
        if _OF_ONE_PROCESS.fullmatch(target):
            yield f"the program calls '{target}', which works only in the process that made it"
        elif op.name in _WAITING:
            yield f"the program has an op '{op.name}', which would wait for ever"
    yield from _differing_calls(module, manifest)


def _differing(what: str, types: Sequence[ir.Type], specs: Sequence[Spec]) -> Iterator[str]:
    if len(types) != len(specs):
        yield f"@main has {len(types)} {what}s, and {len(specs)} are listed"
        return
    for number, (type_, spec) in enumerate(zip(types, specs, strict=True)):
        if spec_of(type_) != spec:
            yield f"{what} {number} of @main is {type_}, and listed as {show(spec)}"


def show(spec: Spec) -> str:
    """A spec for messages: `float32[3, <=5]`."""
    sizes = (
        f"<={size}" if dim in spec.bounded else str(size) for dim, size in enumerate(spec.shape)
    )
    return f"{spec.dtype}[{', '.join(sizes)}]"


def title_of(manifest: Manifest) -> str:
    """The function and its arguments, for people: `predict(x: float32[32, 3])`."""
    entries = manifest.inputs_of("argument")
    return f"{manifest.function}({', '.join(f'{e.name}: {show(e.spec)}' for e in entries)})"


def _differing_calls(module: ir.Module, manifest: Manifest) -> Iterator[str]:
    listed = {callback.name: [*callback.calls] for callback in manifest.callbacks}
    found: dict[str, list[Call | None]] = {}
    for op in custom_calls.host_calls(module):
        name = custom_calls.callback_of(op)
        if not isinstance(name, str):
            yield f"a host call has the callback id {name} in the place of a name"
        else:
            found.setdefault(name, []).append(call_of(op))
    for name in found.keys() - listed.keys():
        yield f"the program calls '{name}', which is not listed"
    for name, calls in listed.items():
        in_program = found.get(name, [])
        if len(calls) != len(in_program):
            times, listing = counted(len(in_program), "time"), counted(len(calls), "call")
            yield f"'{name}' is called {times}, and listed with {listing}"
            continue
        for number, (call, other) in enumerate(zip(calls, in_program, strict=True)):
            listed_call = Call(call.operands, call.results, call.effect)
            if other != listed_call:
                yield (
                    f"call {number} of '{name}' is {_show_call(other)}, and listed as "
                    f"{_show_call(listed_call)}"
                )


def _show_call(call: Call | None) -> str:
    if call is None:
        return "of types that NumPy does not have"
    operands, results = (", ".join(map(show, specs)) for specs in (call.operands, call.results))
    return f"({operands}) -> ({results}), {call.effect}"


def _specs(
    types: Sequence[ir.Type], config: dict[str, ir.Attribute], side: str
) -> tuple[Spec, ...] | None:
    """The specs of one side of a call, as its function sees them; None where one has none."""
    dynamic, sub_byte = (
        custom_calls.pairs(config[f"{kind}_{side}"]) for kind in ("dynamic", "sub_byte")
    )
    values = [type_ for type_ in types if not is_token(type_)]
    specs = []
    for number, type_ in enumerate(values[: len(values) - len(dynamic)]):
        spec = spec_of(type_)
        if spec is None:
            return None
        visible = [custom_calls.SUB_BYTE[code] for index, code in sub_byte if index == number]
        dtype = name_of(visible[0]) if visible else spec.dtype
        assert dtype is not None
        bounded = sorted(dim for index, dim in dynamic if index == number)
        specs.append(Spec(dtype, spec.shape, tuple(bounded)))
    return tuple(specs)


def _effect_of(op: ir.Operation) -> Effect:
    if any(is_token(operand.type) for operand in op.operands):
        return "ordered"
    return "unordered" if custom_calls.has_side_effect(op) else "pure"

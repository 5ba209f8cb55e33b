"""The translation of TensorFlow's programs into portable artifacts, and back into TensorFlow.

A program from TensorFlow holds ops and attributes of XLA's own, which no artifact may hold. It also
holds results of bounded size, and callback numbers that are valid only in the exporting process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, PassError, raising, report_all
from hostcall_mlir.ir.jaxlib_names import address, attribute_of, attributes_of, names_of_attributes
from hostcall_mlir.passes import callbacks, pipeline
from hostcall_mlir.program.manifests import ProgramError

# XLA's attribute for the outputs that are new values of inputs.
_ALIASES = "mhlo.input_output_alias"

_PROGRAM = "the program"  # in messages
_RENAMED = {"mhlo.erf": "chlo.erf"}  # ops of XLA's own that another dialect has, too
_PASSES = "func.func(chlo-legalize-to-stablehlo),symbol-dce,cse,hostcall-check,strip-debuginfo"


def parse(text: str) -> ir.Module:
    """Parse TensorFlow's text into a module, in a context of its own; a bad text is a PassError."""
    context = private.new_context()
    with raising(context, _PROGRAM) as collector:
        return pipeline.read(text, context, collector)


def take_updates(module: ir.Module) -> dict[int, int]:
    """Return for each output that is the new value of an input the number of that input."""
    aliases = attribute_of(module.operation, _ALIASES)
    found = {}
    for alias in aliases if aliases is not None else ():
        entry = ir.DictAttr(alias)
        output = ir.DenseI64ArrayAttr(entry["output_index"])
        source = ir.DictAttr(entry["alias"])["parameter_number"]
        # A program with one output has no tuple of outputs, and so no index.
        found[output[0] if len(output) else 0] = ir.IntegerAttr(source).value
    return found


def callbacks_in(module: ir.Module) -> list[int]:
    """Return the numbers of the callbacks that a program calls, each once, in textual order."""
    called = map(custom_calls.callback_of, custom_calls.host_calls(module))
    return [*dict.fromkeys(number for number in called if isinstance(number, int))]


def take_callbacks_of_jax(module: ir.Module, register: Callable[[int, bool], int]) -> None:
    """Make JAX's own callbacks in a lowered module host calls, in place; a PassError if one cannot.

    `register` returns the callback id for the index of a function among the program's, and for
    whether the function takes and returns a token first.
    """
    ids: dict[int, int] = {}
    for op in callbacks.calls_of_jax(module):
        index = ir.IntegerAttr(custom_calls.early_config_of(op)["index"]).value
        if index not in ids:
            ids[index] = register(index, any(private.is_token(one.type) for one in op.operands))
    given = ",".join(f"{index}={number}" for index, number in ids.items())
    with module.context, ir.Location.unknown(), raising(module.context, _PROGRAM):
        callbacks.FROM_JAX.run(module, {"callbacks": given})


def finish(
    module: ir.Module,
    name: str,
    constants: Mapping[int, np.ndarray],
    with_states: Collection[int] = (),
) -> list[tuple[int, int]]:
    """Make a module as `parse` returns it portable, in place; a PassError names what cannot be."""
    # Inputs with a number among the constants go. So does the last result of callbacks in
    # `with_states`: the handle of a tape residual, which only a gradient would need. Returned for
    # each new output, behind the old ones: the output whose true size it is, and the dimension.
    with module.context, ir.Location.unknown(), raising(module.context, _PROGRAM):
        _translate(module)
        module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
        main = traversal.functions(module)["main"]
        _set_constants(main, constants)
        sizes = _return_sizes(main)
        module.operation.verify()
        for call in custom_calls.host_calls(module):
            if custom_calls.callback_of(call) in with_states:
                _without_state(call)
        pipeline.run(module, _PASSES)
    return sizes


def set_names(module: ir.Module, names: Mapping[int, str]) -> list[int]:
    """Write names in the place of callback numbers; return these in the order of `host_calls`."""
    numbers = []
    for call in custom_calls.host_calls(module):
        number = custom_calls.callback_of(call)
        assert isinstance(number, int)
        custom_calls.set_callback(call, names[number])
        numbers.append(number)
    return numbers


def artifact_of(module: ir.Module, version: str) -> bytes:
    """Serialize a module as an artifact for readers of this StableHLO version and of newer ones."""
    with Collector(module.context) as collector:
        try:
            return private.serialize_artifact(module, version)
        except (ValueError, ir.MLIRError) as error:
            reason = collector.show(_PROGRAM) or str(error)
            raise PassError(reason) from error


def text_of(module: ir.Module) -> str:
    """Return a module as text for people; long constants are left out."""
    return str(module.operation.get_asm(large_elements_limit=64))


def signature_of(module: ir.Module) -> ir.FunctionType:
    """Return the types that @main takes and returns."""
    return traversal.type_of(traversal.functions(module)["main"])


def _translate(module: ir.Module) -> None:
    """Remove or replace ops and attributes that only XLA knows; report the ops that remain."""
    names = names_of_attributes(module.operation)
    for name in [name for name in names if name.startswith("mhlo.")]:
        del module.operation.attributes[name]
    unknown = []
    for op in custom_calls.walk(module):
        if "xla_shape" in op.attributes:
            del op.attributes["xla_shape"]
        if custom_calls.is_host_call(op):
            custom_calls.restore_arrays(op)  # XlaCallModule's programs have tensors there
        elif op.name == "mhlo.copy":  # the copy differs only in XLA's buffer
            traversal.replace(op, op.operands)
        elif op.name in _RENAMED:
            with ir.InsertionPoint(op), op.location:
                types = [result.type for result in op.results]
                renamed = ir.Operation.create(_RENAMED[op.name], types, op.operands)
            traversal.replace(op, renamed.results)
        elif op.name.startswith("mhlo."):
            unknown.append(op)
    lacking = "is an op of XLA's own, which StableHLO does not have"
    report_all((op, f"'{op.name}' {lacking}") for op in unknown)


def _set_constants(main: ir.Operation, constants: Mapping[int, np.ndarray]) -> None:
    block = main.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block):
        for number, value in constants.items():
            argument = block.arguments[number]
            argument.replace_all_uses_with(custom_calls.constant(value, argument.type))
    for number in sorted(constants, reverse=True):
        block.erase_argument(number)
    inputs = [argument.type for argument in block.arguments]
    traversal.set_type(main, inputs, traversal.type_of(main).results)
    for kept in ("arg_attrs", "res_attrs"):
        if kept in main.attributes:
            del main.attributes[kept]


def _return_sizes(main: ir.Operation) -> list[tuple[int, int]]:
    """Make @main return bounded values with their padding, and the true sizes behind them."""
    block = main.regions[0].blocks[0]
    returning = [*block][-1].operation
    values, sizes, found = [*returning.operands], [], []
    with ir.InsertionPoint(returning):
        for number, value in enumerate(values):
            for dim in private.bounds_of(value.type):
                sizes.append(stablehlo.get_dimension_size(value, dim))
                found.append((number, dim))
            values[number] = custom_calls.padded(value)
        ir.Operation.create("func.return", [], [*values, *sizes])
    returning.erase()
    types = [value.type for value in [*values, *sizes]]
    traversal.set_type(main, traversal.type_of(main).inputs, types)
    return found


def _without_state(call: ir.Operation) -> None:
    """Remove the last value of a call's tuple; true sizes and perhaps a token follow it."""
    types = custom_calls.result_types(call)
    sizes = len(custom_calls.pairs(custom_calls.config_of(call).get("dynamic_results")))
    last = len(types) - sum(map(private.is_token, types)) - sizes - 1
    kept = [type_ for i, type_ in enumerate(types) if i != last]
    with ir.InsertionPoint(call), call.location:
        new = ir.Operation.create(
            call.name, [ir.TupleType.get_tuple(kept)], [*call.operands], attributes_of(call)
        )
    for element in [use.owner.operation for use in call.results[0].uses]:
        index = ir.IntegerAttr(element.attributes["index"]).value
        with ir.InsertionPoint(element), element.location:
            if index == last:
                value = custom_calls.constant(np.zeros([], np.int64), element.results[0].type)
            else:
                value = stablehlo.get_tuple_element(new.result, index - (index > last))
        traversal.replace(element, [value])
    call.erase()


_BOUNDED = """\
the program has arrays whose sizes are known only when it runs (of hostcall.BoundedSpec), and
TensorFlow's op for such programs, XlaCallModule, refuses these. Run it by hostcall_mlir.load; or
export a function that returns arrays of the largest size, and the true size as one more result."""


def convert(module: ir.Module, numbers: Mapping[str, int], version: str) -> tuple[bytes, bool]:
    """Make an artifact for TensorFlow's XlaCallModule; return it, and whether it has a token."""
    # The module is changed in place. `numbers` are those of the callbacks in this process, by name.
    # TensorFlow threads a token through a program that takes and returns one. Integers of four bits
    # become arguments and results of eight bits, since XLA packs them and TensorFlow does not.
    if any(
        private.bounds_of(value.type) for op in custom_calls.walk(module) for value in op.results
    ):
        raise ProgramError(_BOUNDED)
    with module.context, ir.Location.unknown():
        for call in custom_calls.host_calls(module):
            name = custom_calls.callback_of(call)
            assert isinstance(name, str)
            custom_calls.set_callback(call, numbers[name])
        _hide_zeros(module)
        _widen(traversal.functions(module)["main"])
        has_token = _take_token(traversal.functions(module)["main"])
        module.operation.verify()
    return artifact_of(module, version), has_token


_DIVISIONS = {"stablehlo.divide", "stablehlo.remainder"}


def _hide_zeros(module: ir.Module) -> None:
    """Hide integer divisors that may be folded to zero: XlaCallModule would divide by them."""
    for op in custom_calls.walk(module):
        if op.name in _DIVISIONS and isinstance(op.result.type.element_type, ir.IntegerType):
            divisor = op.operands[1]
            if _is_folded(divisor):
                with ir.InsertionPoint(op), op.location:
                    op.operands[1] = stablehlo.optimization_barrier([divisor])


def _is_folded(value: ir.Value) -> bool:
    """Return whether a value follows from constants alone, and not from one without zeros."""
    waiting, seen = [value], set()
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, ir.Block) or custom_calls.target_of(owner.operation) is not None:
            return False
        if address(owner.operation) not in seen:
            seen.add(address(owner.operation))
            waiting += owner.operation.operands
    return value.owner.name != "stablehlo.constant" or _holds_zero(value.owner.operation)


def _holds_zero(constant: ir.Operation) -> bool:
    elements = ir.DenseIntElementsAttr(constant.attributes["value"])
    return elements[0] == 0 if elements.is_splat else 0 in [*elements]


def _widen(main: ir.Operation) -> None:
    """Make @main take and return integers of four bits as integers of eight bits."""
    block = main.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block):
        for argument in block.arguments:
            if (wide := _wide_type(argument.type)) is not None:
                sub_byte = argument.type
                argument.set_type(wide)
                value = stablehlo.convert(sub_byte, argument)
                argument.replace_all_uses_except(value, value.owner.operation)
    returning = [*block][-1].operation
    with ir.InsertionPoint(returning):
        for number, value in enumerate(returning.operands):
            if (wide := _wide_type(value.type)) is not None:
                returning.operands[number] = stablehlo.convert(wide, value)
    types = ([value.type for value in values] for values in (block.arguments, returning.operands))
    traversal.set_type(main, *types)


def _wide_type(type_: ir.Type) -> ir.Type | None:
    """Return the type with eight bits for one with four bits, None for other types."""
    element = custom_calls.element_of(type_)
    if element not in ("i4", "ui4"):
        return None
    return ir.RankedTensorType.get(type_.shape, ir.Type.parse(custom_calls.WIDE[element]))


def _take_token(main: ir.Operation) -> bool:
    """Make @main take and return a token if it creates any; return whether it does."""
    block = main.regions[0].blocks[0]
    *ops, returning = (op.operation for op in block)
    created = [op for op in ops if op.name == "stablehlo.create_token"]
    others = [op for op in ops if op.name != "stablehlo.create_token"]
    if not created:
        return False
    token = created[0].results[0].type
    argument = block.add_argument(token, ir.Location.unknown())
    for op in created:
        traversal.replace(op, [argument])
    with ir.InsertionPoint(returning):
        last = [token for op in others for token in _last_tokens(op)]
        joined = ir.Operation.create("stablehlo.after_all", [token], [argument, *last])
        values = [*returning.operands, joined.results[0]]
        ir.Operation.create("func.return", [], values)
    returning.erase()
    inputs = [value.type for value in block.arguments]
    traversal.set_type(main, inputs, [value.type for value in values])
    return True


def _last_tokens(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the tokens among an op's results that no op takes; pure calls may be dropped."""
    if custom_calls.is_host_call(op) and not custom_calls.has_side_effect(op):
        return
    for result in op.results:
        if private.is_token(result.type):
            if not [*result.uses]:
                yield result
        elif custom_calls.runs_on_host(op) and isinstance(result.type, ir.TupleType):
            last = ir.TupleType(result.type).num_types - 1
            taken = {
                ir.IntegerAttr(use.owner.operation.attributes["index"]).value for use in result.uses
            }
            if last >= 0 and last not in taken:
                element = ir.TupleType(result.type).get_type(last)
                if private.is_token(element):
                    yield stablehlo.get_tuple_element(result, last)

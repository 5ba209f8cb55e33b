"""What TensorFlow exports, made a program that can be exported.

TensorFlow's text holds ops and attributes of XLA's own, which no artifact may hold, results of
bounded size, and the numbers that callbacks have in the process that exports.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import builders, custom_calls, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Failure, PassError, report
from hostcall_mlir.ir.jaxlib_names import attribute_of, attributes_of, names_of_attributes
from hostcall_mlir.passes import pipeline

# Where XLA says which output is the new value of which input.
_ALIASES = "mhlo.input_output_alias"

# Ops of XLA's own that others have, too.
_RENAMED = {"mhlo.erf": "chlo.erf"}

_PASSES = "func.func(chlo-legalize-to-stablehlo),symbol-dce,cse,hostcall-check,strip-debuginfo"


def parse(text: str) -> ir.Module:
    """TensorFlow's text as a module, in a context of its own.

    Raises:
      PassError: when it is none.
    """
    context = private.new_context()
    with Collector(context) as collector:
        try:
            return pipeline.read(text, context, collector)
        except (Failure, ir.MLIRError) as error:
            raise PassError(collector.show("the program")) from error


def take_updates(module: ir.Module) -> dict[int, int]:
    """For each output that is the new value of an input, the number of the input."""
    aliases = attribute_of(module.operation, _ALIASES)
    found = {}
    for alias in aliases if aliases is not None else ():
        entry = ir.DictAttr(alias)
        output = ir.DenseI64ArrayAttr(entry["output_index"])
        source = ir.DictAttr(entry["alias"])["parameter_number"]
        # A program with one output has no tuple of them, and so no index.
        found[output[0] if len(output) else 0] = ir.IntegerAttr(source).value
    return found


def callbacks_in(module: ir.Module) -> list[int]:
    """The numbers of what the program's host calls call, each once, in the order of the text."""
    called = map(custom_calls.callback_of, custom_calls.host_calls(module))
    return [*dict.fromkeys(number for number in called if isinstance(number, int))]


def finish(
    module: ir.Module,
    name: str,
    constants: Mapping[int, np.ndarray],
    with_states: Collection[int] = (),
) -> list[tuple[int, int]]:
    """Makes the module portable, in place.

    Args:
      module: as `parse` gives it.
      name: of the program.
      constants: values for some of the inputs, which are inputs no more.
      with_states: the numbers of the callbacks whose last value is not their function's: it is the
        number of what a gradient would need, and nothing needs it.

    Returns:
      For each output behind those that there were: the output whose true size it is, and the
      dimension.

    Raises:
      PassError: when something cannot be exported; the text says what.
    """
    with module.context, ir.Location.unknown(), Collector(module.context) as collector:
        try:
            _translate(module)
            module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
            main = side_effects.functions(module)["main"]
            _set_constants(main, constants)
            sizes = _return_sizes(main)
            module.operation.verify()
            for call in custom_calls.host_calls(module):
                if custom_calls.callback_of(call) in with_states:
                    _without_state(call)
            pipeline.run(module, _PASSES)
        except (Failure, ir.MLIRError) as error:
            raise PassError(collector.show("the program")) from error
    return sizes


def set_names(module: ir.Module, names: Mapping[int, str]) -> list[int]:
    """Writes qualified names in the place of numbers.

    Returns:
      The numbers, in the order of `_calls.host_calls`.
    """
    numbers = []
    for call in custom_calls.host_calls(module):
        number = custom_calls.callback_of(call)
        assert isinstance(number, int)
        custom_calls.set_callback(call, names[number])
        numbers.append(number)
    return numbers


def artifact_of(module: ir.Module, version: str) -> bytes:
    """The module as an artifact that readers of this StableHLO version, and newer ones, can read.

    Raises:
      PassError: when it holds what that version does not have.
    """
    with Collector(module.context) as collector:
        try:
            return private.serialize_artifact(module, version)
        except (ValueError, ir.MLIRError) as error:
            reason = collector.show("the program") or str(error)
            raise PassError(reason) from error


def text_of(module: ir.Module) -> str:
    """The module for people to read: long constants are left out."""
    text: str = module.operation.get_asm(large_elements_limit=64)
    return text


def inputs_of(module: ir.Module) -> list[ir.Type]:
    """The types that @main takes."""
    main = side_effects.functions(module)["main"]
    return [*ir.FunctionType(_type_of(main)).inputs]


def outputs_of(module: ir.Module) -> list[ir.Type]:
    """The types that @main returns."""
    main = side_effects.functions(module)["main"]
    return [*ir.FunctionType(_type_of(main)).results]


def _translate(module: ir.Module) -> None:
    """Takes out what only XLA knows."""
    names = names_of_attributes(module.operation)
    for name in [name for name in names if name.startswith("mhlo.")]:
        del module.operation.attributes[name]
    unknown = []
    for op in custom_calls.walk(module):
        if "xla_shape" in op.attributes:
            del op.attributes["xla_shape"]
        if custom_calls.is_host_call(op):
            custom_calls.restore_arrays(op)  # of programs that came through XlaCallModule
        elif op.name == "mhlo.copy":  # only XLA's buffers know the difference
            _replace(op, op.operands[0])
        elif op.name in _RENAMED:
            with ir.InsertionPoint(op), op.location:
                types = [result.type for result in op.results]
                _replace(op, ir.Operation.create(_RENAMED[op.name], types, op.operands).results[0])
        elif op.name.startswith("mhlo."):
            unknown.append(op)
    for op in unknown:
        report(op, f"'{op.name}' is an op of XLA's own, which StableHLO does not have")
    if unknown:
        raise Failure


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _set_constants(main: ir.Operation, constants: Mapping[int, np.ndarray]) -> None:
    block = main.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block):
        for number, value in constants.items():
            argument = block.arguments[number]
            argument.replace_all_uses_with(builders.constant(value, argument.type))
    for number in sorted(constants, reverse=True):
        block.erase_argument(number)
    inputs = [argument.type for argument in block.arguments]
    set_type(main, inputs, ir.FunctionType(_type_of(main)).results)
    for kept in ("arg_attrs", "res_attrs"):
        if kept in main.attributes:
            del main.attributes[kept]


def _return_sizes(main: ir.Operation) -> list[tuple[int, int]]:
    """Returns padded values in the place of those of bounded size, and the sizes behind them."""
    block = main.regions[0].blocks[0]
    returning = [*block][-1].operation
    values, sizes, found = [*returning.operands], [], []
    with ir.InsertionPoint(returning):
        for number, value in enumerate(values):
            for dim in private.bounds_of(value.type):
                sizes.append(builders.true_size(value, dim))
                found.append((number, dim))
            values[number] = builders.padded(value)
        ir.Operation.create("func.return", [], [*values, *sizes])
    returning.erase()
    types = [value.type for value in [*values, *sizes]]
    set_type(main, ir.FunctionType(_type_of(main)).inputs, types)
    return found


def _without_state(call: ir.Operation) -> None:
    """A call, as TensorFlow has it with one tuple, without the last of its values.

    Behind the values are true sizes, and a token where the call is ordered.
    """
    types = custom_calls.result_types(call)
    sizes = len(custom_calls.pairs(custom_calls.config_of(call).get("dynamic_results")))
    last = len(types) - sum(map(private.is_token, types)) - sizes - 1
    kept = [type_ for i, type_ in enumerate(types) if i != last]
    with ir.InsertionPoint(call), call.location:
        new = ir.Operation.create(
            call.name,
            [ir.TupleType.get_tuple(kept)],
            [*call.operands],
            attributes_of(call),
        )
    for element in [use.owner.operation for use in call.results[0].uses]:
        index = ir.IntegerAttr(element.attributes["index"]).value
        with ir.InsertionPoint(element), element.location:
            if index == last:
                value = builders.constant(np.zeros([], np.int64), element.results[0].type)
            else:
                value = builders.element(new.result, index - (index > last))
        element.results[0].replace_all_uses_with(value)
        element.erase()
    call.erase()


def _type_of(main: ir.Operation) -> ir.Type:
    return ir.TypeAttr(main.attributes["function_type"]).value


def set_type(main: ir.Operation, inputs: Sequence[ir.Type], results: Sequence[ir.Type]) -> None:
    """Says of a function what it takes and returns."""
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))

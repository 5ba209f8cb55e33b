"""Exported programs for TensorFlow's op XlaCallModule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jaxlib.mlir import ir

from hostcall_mlir.ir import builders, custom_calls, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.program.errors import ProgramError
from hostcall_mlir.program.portable import artifact_of, set_type

_BOUNDED = """\
the program has arrays whose sizes are known only when it runs (of hostcall.BoundedSpec), and
TensorFlow's op for such programs, XlaCallModule, refuses these. Run it by hostcall_mlir.load; or
export a function that returns arrays of the largest size, and the true size as one more result."""


def convert(module: ir.Module, numbers: Mapping[str, int], version: str) -> tuple[bytes, bool]:
    """A exported program as an artifact for TensorFlow's XlaCallModule, and whether it has a token.

    TensorFlow threads tokens through programs whose first argument and result are one. Integers of
    four bits are arguments and results of eight bits: XLA packs them, and TensorFlow does not.

    Args:
      module: the program; changed in place.
      numbers: of the callbacks in this process, by their names.
      version: of StableHLO, for the artifact.

    Raises:
      ProgramError: when there are arrays of bounded size in it.
    """
    if any(
        private.bounds_of(value.type) for op in custom_calls.walk(module) for value in op.results
    ):
        raise ProgramError(_BOUNDED)
    with module.context, ir.Location.unknown():
        for call in custom_calls.host_calls(module):
            name = custom_calls.callback_of(call)
            assert isinstance(name, str)
            custom_calls.set_callback(call, numbers[name])
        _widen(side_effects.functions(module)["main"])
        has_token = _take_token(side_effects.functions(module)["main"])
        module.operation.verify()
    return artifact_of(module, version), has_token


def _widen(main: ir.Operation) -> None:
    """Has integers of four bits go in and out of @main as integers of eight."""
    block = main.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block):
        for argument in block.arguments:
            if (wide := _wide_type(argument.type)) is not None:
                sub_byte = argument.type
                argument.set_type(wide)
                value = builders.converted(argument, sub_byte)
                argument.replace_all_uses_except(value, value.owner.operation)
    returning = [*block][-1].operation
    with ir.InsertionPoint(returning):
        for number, value in enumerate(returning.operands):
            if (wide := _wide_type(value.type)) is not None:
                returning.operands[number] = builders.converted(value, wide)
    types = ([value.type for value in values] for values in (block.arguments, returning.operands))
    set_type(main, *types)


def _wide_type(type_: ir.Type) -> ir.Type | None:
    """The type with eight bits for one with four, else None."""
    element = custom_calls.element_of(type_)
    if element not in ("i4", "ui4"):
        return None
    return ir.RankedTensorType.get(type_.shape, ir.Type.parse(custom_calls.WIDE[element]))


def _take_token(main: ir.Operation) -> bool:
    """Has @main take its first token as an argument and return the last one, if it has any."""
    block = main.regions[0].blocks[0]
    *ops, returning = (op.operation for op in block)
    created = [op for op in ops if op.name == "stablehlo.create_token"]
    if not created:
        return False
    token = created[0].results[0].type
    argument = block.add_argument(token, ir.Location.unknown())
    erased = {private.address(op) for op in created}
    ops = [op for op in ops if private.address(op) not in erased]
    for op in created:
        op.results[0].replace_all_uses_with(argument)
        op.erase()
    with ir.InsertionPoint(returning):
        last = [token for op in ops for token in _last_tokens(op)]
        joined = ir.Operation.create("stablehlo.after_all", [token], [argument, *last])
        values = [*returning.operands, joined.results[0]]
        ir.Operation.create("func.return", [], values)
    returning.erase()
    inputs = [value.type for value in block.arguments]
    set_type(main, inputs, [value.type for value in values])
    return True


def _last_tokens(op: ir.Operation) -> Iterator[ir.Value]:
    """The tokens among an op's results that no op takes."""
    for result in op.results:
        if private.is_token(result.type):
            if not [*result.uses]:
                yield result
        elif custom_calls.is_host_call(op) and isinstance(result.type, ir.TupleType):
            last = ir.TupleType(result.type).num_types - 1
            taken = {
                ir.IntegerAttr(use.owner.operation.attributes["index"]).value for use in result.uses
            }
            if last >= 0 and last not in taken:
                element = ir.TupleType(result.type).get_type(last)
                if private.is_token(element):
                    yield builders.element(result, last)

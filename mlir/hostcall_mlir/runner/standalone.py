"""Parts of a partitioned program as programs of their own, which XLA compiles.

What goes in and out of these are arrays: a value of bounded size goes as an array of the bound and
a tensor<i32> for each true size, a tuple as what is in it, and a token, which holds nothing, not at
all. `width` says how many arrays a value is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import builders, custom_calls, side_effects
from hostcall_mlir.ir.jaxlib_names import attributes_of, bounds_attribute, bounds_of, is_token
from hostcall_mlir.passes import transfers

Body = Callable[[Sequence[ir.Value]], Sequence[ir.Value]]


def width(type_: ir.Type) -> int:
    """How many arrays stand for a value of a type."""
    return len(_array_types(type_))


def cluster(functions: Mapping[str, ir.Operation], name: str) -> ir.Module:
    """A program of one of the functions of a module, and of those that it calls."""
    function = functions[name]
    called = {name: function}
    waiting = [function]
    while waiting:
        for op in custom_calls.walk(waiting.pop()):
            callee = side_effects.callee_of(op)
            if callee is not None and callee not in called:
                called[callee] = functions[callee]
                waiting.append(functions[callee])
    type_ = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    # Not its own name, so that clusters which do the same are the same.
    new_name = "part"
    while new_name in called:
        new_name += "_"

    def body(operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
        callee = {"callee": ir.FlatSymbolRefAttr.get(new_name)}
        return [*ir.Operation.create("func.call", type_.results, operands, callee).results]

    program, block = _program(type_.inputs, function.location, body)
    for key, other in called.items():
        copy = other.clone(ip=False).operation
        if key == name:
            copy.attributes["sym_name"] = ir.StringAttr.get(new_name)
        block.append(copy)
    return program


def host_call(call: ir.Operation) -> ir.Module:
    """A program that makes one host call."""

    def body(operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
        types = [result.type for result in call.results]
        marks = (transfers.TO_HOST, transfers.TO_DEVICE)
        attributes = {n: value for n, value in attributes_of(call).items() if n not in marks}
        return [*ir.Operation.create(call.name, types, operands, attributes).results]

    return _program([operand.type for operand in call.operands], call.location, body)[0]


def _program(
    types: Sequence[ir.Type], location: ir.Location, body: Body
) -> tuple[ir.Module, ir.Block]:
    """A program whose @main does what `body` does with values of some types, and its block."""
    with location:
        program = ir.Module.create()
        inputs = [array for type_ in types for array in _array_types(type_)]
        attributes = {
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, [])),
        }
        main = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=False)
        program.body.append(main)
        block = ir.Block.create_at_start(main.regions[0], inputs, [location] * len(inputs))
        with ir.InsertionPoint(block):
            arrays = iter(block.arguments)
            results = body([_enter(type_, arrays) for type_ in types])
            returned = [array for result in results for array in _leave(result)]
            ir.Operation.create("func.return", [], returned)
        type_ = ir.FunctionType.get(inputs, [array.type for array in returned])
        main.attributes["function_type"] = ir.TypeAttr.get(type_)
    return program, program.body


def _enter(type_: ir.Type, arrays: Iterator[ir.Value]) -> ir.Value:
    """A value of a type, of the next arrays."""
    if is_token(type_):
        return ir.Operation.create("stablehlo.create_token", [type_], []).result
    if isinstance(type_, ir.TupleType):
        parts = [_enter(type_.get_type(i), arrays) for i in range(type_.num_types)]
        return ir.Operation.create("stablehlo.tuple", [type_], parts).result
    value = next(arrays)
    bounds: dict[int, int] = {}
    for dim, bound in bounds_of(type_).items():
        bounds[dim] = bound
        value = _with_size(value, dim, next(arrays), bounds)
    return value


def _with_size(value: ir.Value, dim: int, size: ir.Value, bounds: Mapping[int, int]) -> ir.Value:
    """A value with a true size for one dimension; `bounds` are those that it has from then on."""
    type_ = ir.RankedTensorType(value.type)
    shape = [ir.ShapedType.get_dynamic_size() if d == dim else n for d, n in enumerate(type_.shape)]
    encoding = bounds_attribute(bounds, type_.rank)
    result = ir.RankedTensorType.get(shape, type_.element_type, encoding)
    return builders.with_size(value, dim, size, result)


def _leave(value: ir.Value) -> list[ir.Value]:
    """The arrays of a value."""
    type_ = value.type
    if is_token(type_):
        return []
    if isinstance(type_, ir.TupleType):
        parts = [builders.element(value, i) for i in range(type_.num_types)]
        return [array for part in parts for array in _leave(part)]
    return [builders.padded(value), *(builders.true_size(value, dim) for dim in bounds_of(type_))]


def _array_types(type_: ir.Type) -> list[ir.Type]:
    if is_token(type_):
        return []
    if isinstance(type_, ir.TupleType):
        return [array for i in range(type_.num_types) for array in _array_types(type_.get_type(i))]
    bounds = bounds_of(type_)
    if not bounds:
        return [type_]
    tensor = ir.RankedTensorType(type_)
    shape = [bounds.get(dim, size) for dim, size in enumerate(tensor.shape)]
    size = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    return [ir.RankedTensorType.get(shape, tensor.element_type), *[size] * len(bounds)]

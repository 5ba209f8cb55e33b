"""A runner for partitioned programs: the plan, its steps, and the arrays that they exchange.

A host call is a program of its own, with the call alone, on JAX's CPU. So it behaves here as in a
program that XLA runs as a whole: the function gets the same arrays, its results pass the same
checks, and its errors are the same.

These programs take and return arrays only. A value of bounded size becomes an array of the
bound's size and a tensor<i32> for each true size. A tuple becomes its elements. A token holds
nothing, so it is not passed.

Each array has a slot, an index into a list that a run fills. The regions of loops and branches use
the slots of the ops around them. A value that is on the device and on the host has slots for both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import Any

import jax
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.jaxlib_names import attributes_of, bounds_of, is_token, padded_type
from hostcall_mlir.passes import partition
from hostcall_mlir.program.manifests import Manifest, Spec, dtype_of, show
from hostcall_mlir.program.structures import type_name
from hostcall_runtime._runs import RunningProgram


def to_device(value: Any, spec: Spec, device: jax.Device, what: str) -> jax.Array:
    """Return a value, `what` in errors, as an array on a device if its dtype and shape fit."""
    if not isinstance(value, jax.Array):
        value = _to_numpy(value, spec, what)
    elif isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{what} is {value}, which JAX traces. A loaded program is compiled already, and no "
            "part of another: call it outside of jax.jit, jax.grad and jax.vmap."
        )
    if value.dtype != dtype_of(spec.dtype) or value.shape != spec.shape:
        raise ValueError(_differs(value, spec, what))
    if isinstance(value, jax.Array) and value.devices() == {device}:
        return value
    return put(value, device)


def put(value: Any, device: jax.Device) -> jax.Array:
    """Copy a NumPy or JAX array to a device, and keep its dtype."""
    if isinstance(value, jax.Array):
        return jax.device_put(value, device)
    return private.put(value, device)


def without_padding(outputs: Sequence[jax.Array], manifest: Manifest) -> list[jax.Array]:
    """Return the results among the outputs; cut those of bounded size to their true sizes."""
    slices: dict[int, list[slice]] = {}
    for entry, output in zip(manifest.outputs, outputs, strict=True):
        if entry.kind == "size":
            assert entry.of is not None
            assert entry.dim is not None
            rank = len(manifest.outputs[entry.of].spec.shape)
            slices.setdefault(entry.of, [slice(None)] * rank)[entry.dim] = slice(int(output))
    results = [*outputs[: len(manifest.outputs_of("result"))]]
    for number, cut in slices.items():
        # NumPy cuts, since JAX would compile a program for each size.
        padded = np.asarray(results[number])
        results[number] = put(padded[tuple(cut)].copy(), results[number].device)
    return results


def _to_numpy(value: Any, spec: Spec, what: str) -> np.ndarray:
    if isinstance(value, bool | int | float | complex) and spec.shape == ():
        dtype = dtype_of(spec.dtype)
        number = np.asarray(value)
        if _kind(number.dtype) <= _kind(dtype):
            try:
                return np.asarray(value, dtype)
            except OverflowError as error:
                raise ValueError(f"{what} is {value}: {error}") from error
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{what} is not an array: {error}") from error
    if array.dtype.kind in "OSUT":
        found = type_name(value)
        if isinstance(value, np.ndarray):
            found = f"an array of dtype {array.dtype}"
        raise TypeError(f"{what} is {found}, which is not an array of numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _kind(dtype: np.dtype) -> int:
    """Return 0 to 3 for bool, integer, float and complex: each kind can hold the ones before it."""
    kinds = (np.bool_, np.integer, np.floating)
    return next((i for i, kind in enumerate(kinds) if jax.dtypes.issubdtype(dtype, kind)), 3)


def _differs(value: Any, spec: Spec, what: str) -> str:
    found = show(Spec(value.dtype.name, tuple(value.shape)))
    text = f"{what} is {found}, and the program is compiled for {show(spec)}. "
    if value.shape != spec.shape:
        return f"{text}Export it for arrays of that shape, or pass one of this."
    wanted = f"np.asarray(x, np.{spec.dtype})"
    if hasattr(jax.numpy, spec.dtype) and not hasattr(np, spec.dtype):
        wanted = f"np.asarray(x, jax.numpy.{spec.dtype})"
    if {spec.dtype, value.dtype.name} & {"int64", "uint64", "float64", "complex128"}:
        return f"{text}Pass {wanted}: NumPy has 64-bit numbers where JAX, by default, has not."
    return f"{text}Pass {wanted}, or export it for arrays of that dtype."


# Without callback ids, since each host call is a program that runs on the thread that starts it.
_HERE = RunningProgram(())

Slots = list[Any]  # the arrays of a run, indexed by slot

# One step of a plan: it reads its operands from slots, and writes its results to slots.
Step = Callable[[Slots], None]


@dataclass(frozen=True)
class Block:
    """Steps that run in sequence; the slots in `arguments` must be filled before."""

    arguments: list[int]
    steps: list[Step]
    results: list[int]

    def run(self, slots: Slots) -> list[Any]:
        """Run the steps, and return the block's results."""
        for step in self.steps:
            step(slots)
        return [slots[slot] for slot in self.results]


def _apply(
    function: Callable[[list[Any]], list[Any]], operands: list[int], results: list[int]
) -> Step:
    """Return the step that applies a function to arrays."""

    def run(slots: Slots) -> None:
        _store(slots, results, function([slots[slot] for slot in operands]))

    return run


def _copy(device: jax.Device, operands: list[int], results: list[int]) -> Step:
    """Return the step that starts to copy arrays to a device; what uses a copy waits for it."""
    return _apply(lambda arrays: [put(array, device) for array in arrays], operands, results)


def _loop(condition: Block, body: Block, operands: list[int], results: list[int]) -> Step:
    """Return the step for a `stablehlo.while`."""

    def run(slots: Slots) -> None:
        carried = [slots[slot] for slot in operands]
        while True:
            _store(slots, condition.arguments, carried)
            (goes_on,) = condition.run(slots)
            if not np.asarray(goes_on):
                break
            _store(slots, body.arguments, carried)
            carried = body.run(slots)
        _store(slots, results, carried)

    return run


def _branch(index: int, branches: Sequence[Block], results: list[int]) -> Step:
    """Return the step for a `stablehlo.case`: an index out of range selects the last branch."""
    # For a `stablehlo.if`, the branch for true is the last one here.

    def run(slots: Slots) -> None:
        selected = int(np.asarray(slots[index]))
        last = len(branches) - 1
        branch = branches[selected if 0 <= selected <= last else last]
        _store(slots, results, branch.run(slots))

    return run


def _store(slots: Slots, where: Sequence[int], arrays: Sequence[Any]) -> None:
    for slot, array in zip(where, arrays, strict=True):
        slots[slot] = array


Body = Callable[[Sequence[ir.Value]], Sequence[ir.Value]]


def cluster(functions: Mapping[str, ir.Operation], name: str) -> ir.Module:
    """Return a program of one function of a module, with the functions that it calls."""
    function = functions[name]
    called = {name: function}
    waiting = [function]
    while waiting:
        for op in custom_calls.walk(waiting.pop()):
            callee = traversal.callee_of(op)
            if callee is not None and callee not in called:
                called[callee] = functions[callee]
                waiting.append(functions[callee])
    type_ = traversal.type_of(function)
    # Replaces the cluster's own name, so that equal clusters are equal programs.
    new_name = "part"
    while new_name in called:
        new_name += "_"

    def body(operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return [*func.CallOp(type_.results, new_name, operands).results]

    program, block = _program(type_.inputs, function.location, body)
    for key, other in called.items():
        copy = other.clone(ip=False).operation
        if key == name:
            copy.attributes["sym_name"] = ir.StringAttr.get(new_name)
        block.append(copy)
    return program


def host_call(call: ir.Operation) -> ir.Module:
    """Return a program that makes one host call."""

    def body(operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
        types = [result.type for result in call.results]
        marks = (partition.TO_HOST, partition.TO_DEVICE)
        attributes = {n: value for n, value in attributes_of(call).items() if n not in marks}
        return [*ir.Operation.create(call.name, types, operands, attributes).results]

    return _program([operand.type for operand in call.operands], call.location, body)[0]


def _program(
    types: Sequence[ir.Type], location: ir.Location, body: Body
) -> tuple[ir.Module, ir.Block]:
    """Return a program whose @main applies `body` to values of the given types, and its block."""
    with location:
        program = ir.Module.create()
        inputs = [array for type_ in types for array in _array_types(type_)]
        with ir.InsertionPoint(program.body):
            main = func.FuncOp("main", (inputs, []))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            arrays = iter(block.arguments)
            results = body([_enter(type_, arrays) for type_ in types])
            returned = [array for result in results for array in _arrays_of(result)]
            func.ReturnOp(returned)
        traversal.set_type(main.operation, inputs, [array.type for array in returned])
    return program, program.body


def _enter(type_: ir.Type, arrays: Iterator[ir.Value]) -> ir.Value:
    """Build a value of a type from the next arrays."""
    if is_token(type_):
        return ir.Operation.create("stablehlo.create_token", [type_], []).result
    if isinstance(type_, ir.TupleType):
        parts = [_enter(type_.get_type(i), arrays) for i in range(type_.num_types)]
        return ir.Operation.create("stablehlo.tuple", [type_], parts).result
    value = next(arrays)
    bounds: dict[int, int] = {}
    for dim, bound in bounds_of(type_).items():
        bounds[dim] = bound
        value = custom_calls.with_size(value, dim, next(arrays), bounds)
    return value


def _arrays_of(value: ir.Value) -> list[ir.Value]:
    """Return the arrays that represent a value."""
    type_ = value.type
    if is_token(type_):
        return []
    if isinstance(type_, ir.TupleType):
        parts = [stablehlo.get_tuple_element(value, i) for i in range(type_.num_types)]
        return [array for part in parts for array in _arrays_of(part)]
    return [
        custom_calls.padded(value),
        *(stablehlo.get_dimension_size(value, dim) for dim in bounds_of(type_)),
    ]


def _array_types(type_: ir.Type) -> list[ir.Type]:
    """Return the types of the arrays that represent a value of a type."""
    if is_token(type_):
        return []
    if isinstance(type_, ir.TupleType):
        return [array for i in range(type_.num_types) for array in _array_types(type_.get_type(i))]
    size = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    return [padded_type(type_), *[size] * len(bounds_of(type_))]


Places = dict[ir.Value, list[int]]  # the slots of each value's arrays
Run = Callable[[Sequence[Any]], list[Any]]  # runs a program on the arrays that @main takes


def make_plan(module: ir.Module, device: jax.Device, host: jax.Device) -> Run:
    """Compile each part of a result of `hostcall-partition`, whose calls have callback ids."""
    # Return the function that runs @main on arrays that are on the device. Host calls run on
    # `host`, one of JAX's CPUs.
    functions = traversal.functions(module)
    planner = _Planner(functions, device, host)
    block = planner.block(functions["main"].regions[0].blocks[0])
    count = planner.slots  # the planner itself refers to the module

    def run(arrays: Sequence[Any]) -> list[Any]:
        slots: Slots = [None] * count
        _store(slots, block.arguments, arrays)
        return block.run(slots)

    return run


class _Planner:
    def __init__(
        self, functions: Mapping[str, ir.Operation], device: jax.Device, host: jax.Device
    ) -> None:
        self.slots = 0
        self._functions = functions
        self._device = device
        self._host = host
        # The slots on the device and on the host: one table if the host is the device.
        self._on_device: Places = {}
        self._on_host: Places = self._on_device if device == host else {}
        self._executables: dict[tuple[bytes, jax.Device], Any] = {}

    def block(self, block: ir.Block, is_condition: bool = False) -> Block:
        arguments = self._new(self._on_device, block.arguments)
        *ops, terminator = [op.operation for op in block]
        steps = [step for op in ops for step in self._steps(op)]
        if not is_condition:
            return Block(arguments, steps, self._of(self._on_device, terminator.operands))
        steps += self._to_host(terminator)
        return Block(arguments, steps, self._of(self._on_host, terminator.operands))

    def _steps(self, op: ir.Operation) -> list[Step]:
        """Return the steps of an op; an op that only regroups arrays has none."""
        if (callee := traversal.callee_of(op)) is not None:
            program = cluster(self._functions, callee)
            executable = self._compiled(program, self._device, calls=False)
            operands = self._of(self._on_device, op.operands)
            results = self._new(self._on_device, op.results)
            # The device may still run it when this returns.
            return [_apply(partial(private.execute, executable), operands, results)]
        if custom_calls.runs_on_host(op):
            executable = self._compiled(host_call(op), self._host, calls=True)
            before = self._to_host(op)
            operands = self._of(self._on_host, op.operands)
            make_call = partial(private.execute_to_end, executable, program=_HERE)
            call = _apply(make_call, operands, self._new(self._on_host, op.results))
            return [*before, call, *self._to_device(op)]
        if op.name == "stablehlo.while":
            operands = self._of(self._on_device, op.operands)
            condition = self.block(op.regions[0].blocks[0], is_condition=True)
            body = self.block(op.regions[1].blocks[0])
            return [_loop(condition, body, operands, self._new(self._on_device, op.results))]
        if op.name in ("stablehlo.if", "stablehlo.case"):
            before = self._to_host(op)
            (index,) = self._of(self._on_host, op.operands)
            branches = [self.block(region.blocks[0]) for region in op.regions]
            if op.name == "stablehlo.if":  # its first branch is for true, and index 1 means true
                branches.reverse()
            return [*before, _branch(index, branches, self._new(self._on_device, op.results))]
        self._join(op)
        return []

    def _to_host(self, op: ir.Operation) -> list[Step]:
        """Return the copies to the host that an op needs, as its mark says."""
        if self._on_host is self._on_device:
            return []
        marked = [op.operands[index] for index in partition.marked(op, partition.TO_HOST)]
        if not marked:
            return []
        operands = self._of(self._on_device, marked)
        return [_copy(self._host, operands, self._new(self._on_host, marked))]

    def _to_device(self, op: ir.Operation) -> list[Step]:
        """Return the copies of a host call's results that the device needs, as its mark says."""
        if self._on_host is self._on_device:
            return []
        self._new(self._on_device, op.results)
        parts = zip(self._parts(self._on_host, op), self._parts(self._on_device, op), strict=True)
        marked = partition.marked(op, partition.TO_DEVICE)
        crossing = [part for index, part in enumerate(parts) if index in marked]
        if not crossing:
            return []
        sources = [slot for source, _ in crossing for slot in source]
        copies = [slot for _, copy in crossing for slot in copy]
        return [_copy(self._device, sources, copies)]

    def _parts(self, places: Places, op: ir.Operation) -> list[list[int]]:
        """Return the slots of each result of a host call; a tuple counts as its elements."""
        slots = iter(self._of(places, op.results))
        types = custom_calls.result_types(op)
        return [[*islice(slots, len(_array_types(type_)))] for type_ in types]

    def _join(self, op: ir.Operation) -> None:
        """Give the result of an op that only regroups values the slots of its operands."""
        (result,) = op.results
        for places in (self._on_device, self._on_host):
            if not all(is_token(value.type) or value in places for value in op.operands):
                continue  # the operands are on the other side
            slots = self._of(places, op.operands)
            if op.name == "stablehlo.get_tuple_element":
                index = ir.IntegerAttr(op.attributes["index"]).value
                tuple_ = ir.TupleType(op.operands[0].type)
                widths = [len(_array_types(tuple_.get_type(i))) for i in range(index + 1)]
                *_, start, end = accumulate(widths, initial=0)
                slots = slots[start:end]
            count = len(_array_types(result.type))
            assert len(slots) == count, f"it is unknown what {op.name} does"
            places[result] = slots

    def _compiled(self, program: ir.Module, device: jax.Device, calls: bool) -> object:
        """Compile a part; equal parts, such as those of an unrolled loop, share one executable."""
        code = private.bytecode_of(program)
        key = hashlib.sha256(code).digest(), device
        if key not in self._executables:
            self._executables[key] = private.compile_for(code, device, calls)
        return self._executables[key]

    def _new(self, places: Places, values: Sequence[ir.Value]) -> list[int]:
        """Reserve new slots for values."""
        first = self.slots
        for value in values:
            count = len(_array_types(value.type))
            places[value] = [*range(self.slots, self.slots + count)]
            self.slots += count
        return [*range(first, self.slots)]

    def _of(self, places: Places, values: Sequence[ir.Value]) -> list[int]:
        # Tokens hold nothing, so they have no slots.
        return [slot for value in values if not is_token(value.type) for slot in places[value]]

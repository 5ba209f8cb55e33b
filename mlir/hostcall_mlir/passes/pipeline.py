"""Pipelines: the list of passes, the parser of the text form, and the runner."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator

from jaxlib.mlir import ir, passmanager

from hostcall_mlir import passes
from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Diagnostic, Failure, PassError, raising
from hostcall_mlir.passes import callbacks, check, overlap, partition


def _merge_equal(module: ir.Module, _options: passes.Options) -> None:
    """Share equal pure calls."""
    # The later of two calls goes where the earlier one has run for sure: in the same block, or in a
    # region of an op behind it. MLIR's `cse` shares what is between the calls and leaves all custom
    # calls alone, so `cse,hostcall-cse-pure,cse,hostcall-cse-pure` shares more.
    calls: dict[Hashable, ir.Operation] = {}
    for op in custom_calls.host_calls(module):
        if custom_calls.has_side_effect(op):
            continue
        call = _identity(op)
        same = next((calls[b, call] for b in _blocks_around(op) if (b, call) in calls), None)
        if same is None:
            calls[op.block, call] = op
        else:
            traversal.replace(op, same.results)


def _identity(op: ir.Operation) -> Hashable:
    attributes = tuple(private.attributes_of(op).items())
    return attributes, tuple(op.operands), tuple(result.type for result in op.results)


def _blocks_around(op: ir.Operation) -> Iterator[ir.Block]:
    """Return the block of the op, that of its parent op, and so on up to the function."""
    yield op.block
    while op.parent is not None and op.parent.operation.name != "func.func":
        op = op.parent.operation
        yield op.block


PASSES: dict[str, passes.Pass] = {
    each.name: each
    for each in (
        callbacks.FROM_JAX,
        callbacks.NAME,
        callbacks.RESOLVE,
        passes.Pass(
            "hostcall-cse-pure",
            "share pure calls with the same function and operands",
            _merge_equal,
        ),
        # Unused pure calls, and what was computed for them alone: MLIR keeps all custom calls.
        passes.Pass(
            "hostcall-dce",
            "drop pure calls with unused results",
            lambda module, _: traversal.drop_unused(module),
        ),
        partition.PASS,
        overlap.PASS,
        check.PASS,
    )
}

_ANCHORED = re.compile(r"\s*builtin\.module\s*\((.*)\)\s*", re.DOTALL)
_ELEMENT = re.compile(r"([\w.-]+)\s*(?:\{(.*)\})?", re.DOTALL)
_Step = Callable[[ir.Module], None]


def transform(text: str | bytes, pipeline: str, *, source: str = "<string>") -> str:
    """Run a pipeline over a module in text or in bytes, and return the new module as text.

    Args:
      text: the module, in the dialects of the programs that JAX and TensorFlow export, as text,
        bytecode or a portable artifact of StableHLO's.
      pipeline: passes of hostcall, MLIR and StableHLO, in the form of `mlir-opt`:
        `builtin.module(hostcall-dce,hostcall-partition)`.
      source: the name of the text in errors.

    Raises:
      PassError: if the pipeline or the module is invalid, or a pass fails; the text says where.

    Examples:
      >>> text = '''
      ... func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      ...   %unused = stablehlo.sine %x : tensor<3xf32>
      ...   return %x : tensor<3xf32>
      ... }'''
      >>> "stablehlo.sine" in hostcall_mlir.transform(text, "builtin.module(hostcall-dce)")
      False
    """
    context = private.new_context()
    with raising(context, source) as collector:
        module = read(text, context, collector)
        run(module, pipeline)
    return str(module.operation.get_asm(enable_debug_info=True))


def read(text: str | bytes, context: ir.Context, collector: Collector) -> ir.Module:
    """Parse a text or bytecode as a module; after a failure the collector has the errors."""
    if problem := traversal.problem_of_text(text):
        collector.diagnostics.append(problem)
        raise Failure
    module = ir.Module.parse(text, context)
    traversal.check_ops(module)
    if any(custom_calls.find_artifact_ops(custom_calls.walk(module))):
        module = _of_artifact(module, collector)
    for call in custom_calls.host_calls(module):
        custom_calls.restore_arrays(call)
    return module


def _of_artifact(module: ir.Module, collector: Collector) -> ir.Module:
    """Return the StableHLO module of a portable artifact, or raise Failure with an error."""
    try:
        return private.with_stablehlo(module)
    except Exception as error:  # what a newer version has written raises errors of many kinds
        if not collector.diagnostics:
            text = f"the portable artifact cannot be read as StableHLO: {error}"
            collector.diagnostics.append(Diagnostic("error", "", 1, 1, text))
        raise Failure from error


def run(module: ir.Module, pipeline: str) -> None:
    """Run a pipeline over a module in place; the context's diagnostics have the errors."""
    for step in parse(pipeline, module.context):
        step(module)


def parse(pipeline: str, context: ir.Context) -> list[_Step]:
    """Parse a pipeline into its steps, or raise a PassError."""
    anchored = _ANCHORED.fullmatch(pipeline)
    return [
        _step(element, context)
        for element in passes.split_outside_brackets(anchored[1] if anchored else pipeline)
    ]


def _step(element: str, context: ir.Context) -> _Step:
    match = _ELEMENT.fullmatch(element)
    ours = PASSES.get(match[1]) if match else None
    if match is None or ours is None:
        return _foreign(element, context)
    options = passes.read_options(ours, match[2] or "")

    def step(module: ir.Module) -> None:
        with context, ir.Location.unknown():
            ours.run(module, options)
        module.operation.verify()

    return step


def _foreign(element: str, context: ir.Context) -> _Step:
    """Return the step for a pass of MLIR or StableHLO, or for a nested pipeline of those."""
    try:
        manager = passmanager.PassManager.parse(f"builtin.module({element})", context)
    except ValueError as error:
        ours = ", ".join(PASSES)
        raise PassError(
            f"'{element}' in the pipeline: neither a pass of hostcall's ({ours}) nor one that "
            f"MLIR knows: {error}"
        ) from error
    return lambda module: manager.run(module.operation)

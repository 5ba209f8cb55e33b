"""Every private name of jaxlib's that this package uses: a new jaxlib is a change to one file.

Tried with jaxlib 0.8.3 to 0.12.0. What is at `jaxlib.mlir.ir` and `jaxlib.mlir.passmanager` is
MLIR's own Python API, which other files import from there.
"""

import ctypes
import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jaxlib.version
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _stablehlo
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from hostcall_runtime import _runs
from hostcall_runtime._locks import PLACES
from hostcall_runtime._runs import Program

_VERSION = jaxlib.version.__version_info__

if _VERSION < (0, 8):
    raise ImportError(
        f"hostcall_mlir needs jaxlib 0.8 or later, and this is {jaxlib.__version__}: before, "
        "Python that reads a constant of complex numbers ends the process. Install a later "
        "version: pip install 'jax>=0.8,<0.13'.",
        name="jaxlib",
    )

# Regions of ops that a program may have in one another when XLA compiles it for the CPU. It ends
# the process at some 250, in jaxlib 0.9 at some 50, with as much stack as threads usually have.
MOST_COMPILED = 30 if _VERSION[:2] == (0, 9) else 150

# Whether XLA cannot compile calls of functions that take tokens alone.
FAILS_FOR_TOKENS_ALONE = _VERSION >= (0, 11)

# Passes of StableHLO's are known to pipelines from here on, beside MLIR's own. Once a process.
_stablehlo.register_stablehlo_passes()

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer.restype = ctypes.c_void_p


def new_context() -> ir.Context:
    """A context with the dialects of the programs that JAX and TensorFlow export."""
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context


def address(op: ir.Operation) -> int:
    """What tells ops apart in sets and as keys, as long as none is erased.

    Their own hash is no use there: it changes with their operands and attributes.
    """
    pointer: int = _get_pointer(op._CAPIPtr, b"jaxlib.mlir.ir.Operation._CAPIPtr")
    return pointer


def names_of_attributes(op: ir.Operation) -> list[str]:
    """The names of an op's attributes."""
    # jaxlib before 0.9 goes through pairs of names and values.
    return [one if isinstance(one, str) else one.name for one in op.attributes]


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """The attributes of an op, by name.

    Raises:
      TypeError: when jaxlib's Python has no class for one.
    """
    return {name: op.attributes[name] for name in names_of_attributes(op)}


def attribute_of(op: ir.Operation, name: str) -> ir.Attribute | None:
    """An attribute of an op, None where it has none, or one for which jaxlib's Python has no class.

    Constants of complex numbers have such a value.
    """
    if name not in op.attributes:
        return None
    try:
        return op.attributes[name]  # jaxlib 0.9 is the first that has a `get`
    except TypeError:
        return None


# jaxlib 0.9 is the first that has classes for kinds of locations.
_HAS_CLASSES_OF_LOCATIONS = hasattr(ir, "FileLineColLoc")


def is_in_file(location: ir.Location) -> bool:
    """Whether a location is a place in a file, with `filename`, `start_line` and `start_col`."""
    if _HAS_CLASSES_OF_LOCATIONS:
        return isinstance(location, ir.FileLineColLoc)
    return bool(location.is_a_file())


def locations_in(location: ir.Location) -> list[ir.Location]:
    """The locations that one is made of, the innermost first."""
    if _HAS_CLASSES_OF_LOCATIONS:
        is_name, is_call, is_fused = (
            isinstance(location, kind) for kind in (ir.NameLoc, ir.CallSiteLoc, ir.FusedLoc)
        )
    else:
        is_name, is_call = location.is_a_name(), location.is_a_callsite()
        is_fused = location.is_a_fused()
    if is_name:
        return [location.child_loc]
    if is_call:
        return [location.callee, location.caller]
    return [*location.locations] if is_fused else []


def copy_of(module: ir.Module) -> ir.Module:
    """Another module with the same ops, in the same context."""
    copy = ir.Module.create(module.operation.location)
    for name in names_of_attributes(module.operation):
        copy.operation.attributes[name] = module.operation.attributes[name]
    for op in module.body:
        copy.body.append(op.operation.clone(ip=False))
    return copy


def is_token(type_: ir.Type) -> bool:
    """Whether it is `!stablehlo.token`."""
    return bool(_stablehlo.TokenType.isinstance(type_))


def bounds_of(type_: ir.Type) -> dict[int, int]:
    """The dimensions of a tensor type that have a bound instead of a size, and their bounds."""
    if not isinstance(type_, ir.RankedTensorType) or type_.has_static_shape:
        return {}
    bounds = stablehlo.TypeExtensions(type_.encoding).bounds
    return {dim: bound for dim, bound in enumerate(bounds) if type_.is_dynamic_dim(dim)}


def bounds_attribute(bounds: Mapping[int, int], rank: int) -> ir.Attribute:
    """What a tensor type of that rank has as its encoding for such bounds."""
    unknown = ir.ShapedType.get_dynamic_size()
    return stablehlo.TypeExtensions.get([bounds.get(dim, unknown) for dim in range(rank)])


def elements_attribute(value: np.ndarray, element: ir.Type) -> ir.Attribute:
    """The numbers of a constant, which are of one of the dtypes that Python's buffers have."""
    data = np.ascontiguousarray(value)
    if data.dtype == np.bool_ and _VERSION < (0, 9):
        data = np.packbits(data, bitorder="little")  # as MLIR had them
    return ir.DenseElementsAttr.get(data, type=element, shape=value.shape)


def serialize_artifact(module: ir.Module, version: str) -> bytes:
    """A module as a portable artifact of a version of StableHLO.

    Raises:
      ValueError: when it holds what that version does not have.
    """
    module.operation.walk(_drop_tilings)
    text = module.operation.get_asm(binary=False, enable_debug_info=False)
    artifact: bytes = stablehlo.serialize_portable_artifact_str(text, version)
    return artifact


def rewritten(artifact: bytes, version: str) -> bytes:
    """What JAX has exported, for a version of StableHLO, with its source places."""
    if _VERSION < (0, 11):  # which write nothing newer
        return artifact
    from jaxlib import _jax

    module = deserialize_artifact(new_context(), artifact)
    module.operation.walk(_drop_tilings)
    # True leaves what JAX says of shardings, which is no StableHLO.
    written: bytes = _jax.mlir.serialize_portable_artifact(module, version, True)
    return written


def _drop_tilings(op: ir.Operation) -> ir.WalkResult:
    """From jaxlib 0.11 on a custom call says that it has none, which older versions cannot read."""
    if "result_tilings" in op.attributes and not [*ir.ArrayAttr(op.attributes["result_tilings"])]:
        del op.attributes["result_tilings"]
    return ir.WalkResult.ADVANCE


def deserialize_artifact(context: ir.Context, artifact: bytes) -> ir.Module:
    """The module of a portable artifact. Bytes that somebody has made up may end the process.

    Raises:
      ValueError: when it is none, or of a newer version of StableHLO; diagnostics say why.
    """
    return stablehlo.deserialize_portable_artifact(context, artifact)


def bytecode_of(module: ir.Module) -> bytes:
    """A module as this jaxlib alone reads it, the same for modules that are the same."""
    code = io.BytesIO()
    module.operation.write_bytecode(file=code)
    return code.getvalue()


def compile_for(bytecode: bytes, device: Any, calls: bool) -> Any:
    """What XLA makes of a module for one of JAX's devices; its @main has no tokens and tuples.

    Args:
      bytecode: the module.
      device: the one that it is for.
      calls: whether it has host calls.

    Raises:
      RuntimeError: when XLA cannot compile it.
    """
    # Here, since they take longer to load than a pass to run.
    from jaxlib import _jax, xla_client

    options = xla_client.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    devices = _jax.DeviceList((device,))
    if not calls:
        return device.client.compile_and_load(bytecode, devices, options)
    # XLA's CPU runs what has a callback, whatever that is, on the thread that asks for it.
    module = ir.Module.parse(bytecode, new_context())
    return device.client.compile_and_load(module, devices, options, [lambda: None])


def put(array: np.ndarray, device: Any) -> Any:
    """A JAX array of just the dtype of NumPy's. `jax.device_put` takes ten times as long."""
    import jax
    from jaxlib import xla_client

    aval = jax.core.ShapedArray(array.shape, array.dtype)
    sharding = jax.sharding.SingleDeviceSharding(device)
    with jax.enable_x64(True):  # or numbers of 64 bits lose half of them, without a word
        return xla_client.batched_device_put(aval, sharding, [array], [device])


def execute(executable: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of a program without host calls, which may go on when this has returned.

    Args:
      executable: what `compile_for` has made.
      arrays: JAX arrays on its device, of the dtypes and shapes that it takes.
    """
    results = executable.execute_sharded(arrays)
    return [shards[0] for shards in results.disassemble_into_single_device_arrays()]


# Of the runs of programs with calls, from numbers on that neither a thread has as its own nor
# `hostcall.jax` takes.
_streams = itertools.count(1 << 41)


def execute_to_end(executable: Any, arrays: Sequence[Any], program: Program) -> list[Any]:
    """As `execute`, for a program with host calls; it has ended when this returns.

    It runs on this thread: behind other programs it would be on one of XLA's few, and a host call
    that runs a JAX program would need another one. XLA does so where there is nothing to wait for.
    """
    import jax
    from jaxlib import _jax

    jax.block_until_ready(arrays)
    stream = _jax.get_execution_stream_id()
    _jax.set_execution_stream_id(next(_streams))
    try:
        with PLACES.taken(), _runs.running(program):
            results = executable.execute_sharded(arrays, with_tokens=True)
            token = results.consume_token()
            found = [shards[0] for shards in results.disassemble_into_single_device_arrays()]
            token.block_until_ready()
    finally:
        _jax.set_execution_stream_id(stream)
    return found

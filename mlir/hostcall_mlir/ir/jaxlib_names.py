"""The private names of jaxlib that this package uses, so that a new jaxlib is a change to one file.

Tested with jaxlib 0.8.3 to 0.12.0. `jaxlib.mlir.ir` and `jaxlib.mlir.passmanager` are MLIR's own
Python API, so other files import from them directly.
"""

import ctypes
import io
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jaxlib.version
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _stablehlo
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from hostcall_runtime import _runs
from hostcall_runtime._locks import PLACES
from hostcall_runtime._patching import INSTALL_JAX
from hostcall_runtime._runs import RunningProgram

_VERSION = jaxlib.version.__version_info__
_TILINGS = "result_tilings"
_OF_CPU = "Host"  # XLA's name for the platform

if _VERSION < (0, 8):
    raise ImportError(
        f"hostcall_mlir needs jaxlib 0.8 or later, and this is {jaxlib.__version__}: before, "
        "Python that reads a constant of complex numbers ends the process. Install a later "
        f"version: {INSTALL_JAX}.",
        name="jaxlib",
    )

# The limit on nested ops when XLA compiles a program for the CPU. With the usual stack of a thread,
# XLA ends the process at about 250, in jaxlib 0.9 at about 50.
MOST_COMPILED = 30 if _VERSION[:2] == (0, 9) else 150

# Whether XLA fails to compile calls of functions that take only tokens.
FAILS_FOR_TOKENS_ALONE = _VERSION >= (0, 11)

# From here on, pipelines know StableHLO's passes beside MLIR's own. Called once per process.
_stablehlo.register_stablehlo_passes()

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer.restype = ctypes.c_void_p


def new_context() -> ir.Context:
    """Create a context with the dialects of the programs that JAX and TensorFlow export."""
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
    """Return a key for an op in sets and dicts, valid as long as no op is erased."""
    # The hash of an op does not serve: it changes with the op's operands and attributes.
    return int(_get_pointer(op._CAPIPtr, b"jaxlib.mlir.ir.Operation._CAPIPtr"))


def names_of_attributes(op: ir.Operation) -> list[str]:
    """Return the names of an op's attributes."""
    # Before jaxlib 0.9, the loop yields pairs of names and values.
    return [one if isinstance(one, str) else one.name for one in op.attributes]


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """Return the attributes of an op, by name; a TypeError if jaxlib has no class for one."""
    return {name: op.attributes[name] for name in names_of_attributes(op)}


def attribute_of(op: ir.Operation, name: str) -> ir.Attribute | None:
    """Return an attribute of an op, None if it is absent or jaxlib's Python has no class for it."""
    # Jaxlib has no class for the values of complex constants.
    if name not in op.attributes:
        return None
    try:
        return op.attributes[name]  # `get` exists from jaxlib 0.9 on
    except TypeError:
        return None


# Classes for kinds of locations exist from jaxlib 0.9 on.
_HAS_CLASSES_OF_LOCATIONS = hasattr(ir, "FileLineColLoc")


def is_in_file(location: ir.Location) -> bool:
    """Return whether a location has a place in a file: `filename`, `start_line` and `start_col`."""
    if _HAS_CLASSES_OF_LOCATIONS:
        return isinstance(location, ir.FileLineColLoc)
    return bool(location.is_a_file())


def locations_in(location: ir.Location) -> list[ir.Location]:
    """Return the locations that a location consists of, the innermost first."""
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
    """Return a copy of a module, in the same context."""
    copy = ir.Module.create(module.operation.location)
    for name in names_of_attributes(module.operation):
        copy.operation.attributes[name] = module.operation.attributes[name]
    for op in module.body:
        copy.body.append(op.operation.clone(ip=False))
    return copy


def is_token(type_: ir.Type) -> bool:
    """Return whether a type is `!stablehlo.token`."""
    return bool(_stablehlo.TokenType.isinstance(type_))


def bounds_of(type_: ir.Type) -> dict[int, int]:
    """Return the bounded dimensions of a tensor type, with their bounds."""
    if not isinstance(type_, ir.RankedTensorType) or type_.has_static_shape:
        return {}
    bounds = stablehlo.TypeExtensions(type_.encoding).bounds
    return {dim: bound for dim, bound in enumerate(bounds) if type_.is_dynamic_dim(dim)}


def padded_type(type_: ir.Type) -> ir.RankedTensorType:
    """Return a tensor type with its bounds in the place of the sizes that vary."""
    tensor, bounds = ir.RankedTensorType(type_), bounds_of(type_)
    if not bounds:
        return tensor
    shape = [bounds.get(dim, size) for dim, size in enumerate(tensor.shape)]
    return ir.RankedTensorType.get(shape, tensor.element_type)


def bounded_type(padded: ir.RankedTensorType, bounds: Mapping[int, int]) -> ir.RankedTensorType:
    """Return a tensor type of a padded shape whose dimensions in `bounds` vary up to these."""
    if not bounds:
        return padded
    unknown = ir.ShapedType.get_dynamic_size()
    shape = [unknown if dim in bounds else size for dim, size in enumerate(padded.shape)]
    limits = [bounds.get(dim, unknown) for dim in range(padded.rank)]
    encoding = stablehlo.TypeExtensions.get(limits)
    return ir.RankedTensorType.get(shape, padded.element_type, encoding)


def elements_attribute(value: np.ndarray, element: ir.Type) -> ir.Attribute:
    """Return the attribute of a constant's elements; Python's buffers must support their dtype."""
    data = np.ascontiguousarray(value)
    if data.dtype == np.bool_ and _VERSION < (0, 9):
        data = np.packbits(data, bitorder="little")  # MLIR's form before 0.9
    return ir.DenseElementsAttr.get(data, type=element, shape=value.shape)


def serialize_artifact(module: ir.Module, version: str) -> bytes:
    """Serialize a module as a portable artifact of a StableHLO version, if that has all its ops."""
    module.operation.walk(_drop_tilings)
    text = module.operation.get_asm(binary=False, enable_debug_info=False)
    return bytes(stablehlo.serialize_portable_artifact_str(text, version))


def rewritten(artifact: bytes, version: str) -> bytes:
    """Rewrite an artifact of JAX's for a StableHLO version, and keep its source locations."""
    if _VERSION < (0, 11):  # these write no newer StableHLO
        return artifact
    from jaxlib import _jax

    module = deserialize_artifact(new_context(), artifact)
    module.operation.walk(_drop_tilings)
    # True keeps JAX's shardings, which are not StableHLO.
    return bytes(_jax.mlir.serialize_portable_artifact(module, version, True))


def _drop_tilings(op: ir.Operation) -> ir.WalkResult:
    """Drop `result_tilings` that say nothing, for older versions of StableHLO, which lack them."""
    # jaxlib writes an empty list from 0.11 on, TensorFlow 2.22 an empty list for each result.
    if _TILINGS in op.attributes:
        tilings = [*ir.ArrayAttr(op.attributes[_TILINGS])]
        if not any([*ir.ArrayAttr(tiling)] for tiling in tilings):
            del op.attributes[_TILINGS]
    return ir.WalkResult.ADVANCE


def deserialize_artifact(context: ir.Context, artifact: bytes) -> ir.Module:
    """Read the module of a portable artifact; forged bytes may end the process."""
    return stablehlo.deserialize_portable_artifact(context, artifact)


def with_stablehlo(module: ir.Module) -> ir.Module:
    """Return a module with the ops of StableHLO for those of a portable artifact."""
    return deserialize_artifact(module.context, bytecode_of(module))


def bytecode_of(module: ir.Module) -> bytes:
    """Return a module as bytecode that only this jaxlib reads; equal modules give equal bytes."""
    code = io.BytesIO()
    module.operation.write_bytecode(file=code)
    return code.getvalue()


def ffi_handlers() -> dict[str, dict[str, Any]]:
    """Return the FFI handlers of JAX's programs for the CPU: by target and stage, in capsules."""
    # They are those of jaxlib itself, and those given to `jax.ffi.register_ffi_target`.
    from jaxlib import cpu_sparse, lapack, xla_client

    given = [one for module in (lapack, cpu_sparse) for one in module.registrations()["cpu"]]
    # JAX registers handlers when it makes its CPU. Until then they are here.
    platform = xla_client.xla_platform_names.get("cpu", "cpu")
    given += [one[:3] for one in xla_client._custom_callback.get(platform, ())]
    found = {name: handlers for name, handlers, version in given if version == 1}
    for name, handlers in xla_client._xla.custom_call_targets(_OF_CPU).items():
        if isinstance(handlers, dict):  # others are not handlers of the FFI
            found.setdefault(name, handlers)
    return {
        name: handlers if isinstance(handlers, dict) else {"execute": handlers}
        for name, handlers in found.items()
    }


def prepare_handlers(targets: Collection[str]) -> None:
    """Prepare jaxlib's handlers of these targets for calls, where no rule of JAX's has lowered."""
    from jaxlib import cpu_sparse, lapack

    if any(target in targets for target, *_ in lapack.registrations()["cpu"]):
        lapack._lapack.initialize()  # they call SciPy's LAPACK, by pointers that this looks up
    if any(target in targets for target, *_ in cpu_sparse.registrations()["cpu"]):
        import jax.experimental.sparse  # noqa: F401, which registers them in JAX


def compile_for(bytecode: bytes, device: Any, calls: bool) -> object:
    """Compile a module, with host calls if it `calls`, whose @main has no tokens and tuples."""
    # Imported here, since the import takes longer than a pass.
    from jaxlib import _jax, xla_client

    options = xla_client.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    devices = _jax.DeviceList((device,))
    if not calls:
        return device.client.compile_and_load(bytecode, devices, options)
    # XLA's CPU runs a program with any callback on the calling thread.
    module = ir.Module.parse(bytecode, new_context())
    return device.client.compile_and_load(module, devices, options, [lambda: None])


def put(array: np.ndarray, device: Any) -> object:
    """Copy a NumPy array to a device, dtype kept; `jax.device_put` takes ten times as long."""
    import jax
    from jaxlib import xla_client

    aval = jax.core.ShapedArray(array.shape, array.dtype)
    sharding = jax.sharding.SingleDeviceSharding(device)
    with jax.enable_x64(True):  # otherwise 64-bit numbers silently lose half of their bits
        return xla_client.batched_device_put(aval, sharding, [array], [device])


def execute(executable: Any, arrays: Sequence[Any]) -> list[Any]:
    """Start a program without host calls, and return its results; it may still run then."""
    results = executable.execute_sharded(arrays)
    return [shards[0] for shards in results.disassemble_into_single_device_arrays()]


# The execution streams of programs with host calls; threads and `hostcall.jax` have others.
_streams = itertools.count(1 << 41)


def execute_to_end(executable: Any, arrays: Sequence[Any], program: RunningProgram) -> list[Any]:
    """Run a program with host calls, and return its results when it has ended."""
    # It runs on this thread. Queued behind other programs, it would occupy one of XLA's few
    # threads, and a host call that runs a JAX program would need another. XLA does not queue a
    # program on a stream of its own whose arguments are ready.
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

"""Every private name of jaxlib's that this package uses: a new jaxlib is a change to one file.

Tried with jaxlib 0.10.2. What is at `jaxlib.mlir.ir` and `jaxlib.mlir.passmanager` is MLIR's own
Python API, which other files import from there.
"""

import ctypes

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _stablehlo
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

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


def attribute_of(op: ir.Operation, name: str) -> ir.Attribute | None:
    """An attribute of an op, None where it has none, or one for which jaxlib's Python has no class.

    Constants of complex numbers have such a value.
    """
    try:
        return op.attributes.get(name)
    except TypeError:
        return None


def is_token(type_: ir.Type) -> bool:
    """Whether it is `!stablehlo.token`."""
    return bool(_stablehlo.TokenType.isinstance(type_))

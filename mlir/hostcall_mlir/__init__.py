"""Passes over StableHLO programs that call Python functions of the host. Never uses TensorFlow.

`hostcall-opt` runs them on the command line, `transform` from Python.
"""

try:
    import jaxlib.mlir.ir  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hostcall_mlir needs the MLIR of jaxlib, which is not installed here: pip install "
        "'hostcall[jax]', or jaxlib alone"
    ) from error

from hostcall_mlir._diagnostics import PassError
from hostcall_mlir._passes import PASSES
from hostcall_mlir._pipeline import transform

__all__ = ["PASSES", "PassError", "transform"]

"""Passes over StableHLO programs that call Python functions of the host, and a loader for JAX.

`hostcall-opt` runs passes on the command line, `transform` runs them from Python. `load` loads a
program that `hostcall.export` has written. This package never imports TensorFlow.
"""

import importlib
import os

# Before jaxlib is loaded, as JAX does: otherwise jaxlib prints notes on its devices.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

try:
    import jaxlib.mlir.ir  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hostcall_mlir needs the MLIR of jaxlib, which is not installed here: pip install "
        "'hostcall[jax]', or jaxlib alone"
    ) from error

from typing import TYPE_CHECKING, Any

from hostcall_mlir.ir.diagnostics import PassError
from hostcall_mlir.passes.pipeline import PASSES, transform
from hostcall_mlir.program.manifests import ProgramError

if TYPE_CHECKING:
    from hostcall_mlir.loading import LoadedProgram, load
    from hostcall_mlir.program.files import Program
    from hostcall_runtime import last_error
    from hostcall_runtime._permissions import allow

__all__ = [
    "PASSES",
    "LoadedProgram",
    "PassError",
    "Program",
    "ProgramError",
    "allow",
    "last_error",
    "load",
    "transform",
]

# Imported on first use: passes need none of these modules, and `hostcall-opt` has to start quickly.
_ELSEWHERE = {
    "LoadedProgram": "hostcall_mlir.loading",
    "Program": "hostcall_mlir.program.files",
    "allow": "hostcall_runtime._permissions",
    "last_error": "hostcall_runtime",
    "load": "hostcall_mlir.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        module = importlib.import_module(_ELSEWHERE[name])
    except ModuleNotFoundError as error:
        raise ImportError(
            f"hostcall_mlir.{name} needs {error.name}, which is not installed here: pip install "
            "'hostcall[jax]'"
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__]

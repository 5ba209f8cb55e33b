"""StableHLO programs that call Python functions of the host: passes, and running them by JAX.

`hostcall-opt` runs passes on the command line, `transform` from Python. `load` loads a program that
`hostcall.export` has written. Never uses TensorFlow.
"""

import importlib
import os

# As JAX does, before jaxlib is loaded: it would write notes on its devices to the terminal.
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
    from hostcall_mlir.program.files import Program
    from hostcall_mlir.runner.loading import LoadedProgram, load
    from hostcall_runtime import last_error

__all__ = [
    "PASSES",
    "LoadedProgram",
    "PassError",
    "Program",
    "ProgramError",
    "last_error",
    "load",
    "transform",
]

# What loads more than passes need, which `hostcall-opt` is to start quickly for.
_ELSEWHERE = {
    "LoadedProgram": "hostcall_mlir.runner.loading",
    "Program": "hostcall_mlir.program.files",
    "last_error": "hostcall_runtime",
    "load": "hostcall_mlir.runner.loading",
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

"""hostcall: Python functions inside compiled TensorFlow and JAX programs.

With `import hostcall`, `tf.py_function`, `tf.numpy_function` and `tf.compat.v1.py_func` work inside
`tf.function(jit_compile=True)`, whether TensorFlow is imported before or after. `hostcall.jax` is
for JAX.
"""

import importlib as _importlib
import sys as _sys
import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING

from hostcall import _control
from hostcall._control import disable, enable, enabled_by_environment
from hostcall._functions.call_stats import (
    CallbackStats,
    ClusterStats,
    ExecutorStats,
    UnawaitedStats,
    collect_stats,
    stats,
)
from hostcall._functions.callback import Callback, callback
from hostcall._functions.callback import mapped as map  # noqa: A004
from hostcall._functions.declarations import declare
from hostcall._functions.native_code import Native, native
from hostcall._functions.specs import BoundedSpec
from hostcall._replay.calls import RecordedError, RecordingError, ReplayError
from hostcall._replay.entry_points import record, replay
from hostcall_runtime import _errors
from hostcall_runtime._device_arrays import DeviceArray
from hostcall_runtime._errors import (
    ExecutorError,
    LoweringError,
    NotExportableError,
    ProgramError,
    last_error,
)
from hostcall_runtime._fire_and_forget import barrier
from hostcall_runtime._permissions import allow

if _TYPE_CHECKING:
    from hostcall._compiler.graph_pass import partition_pass, rewrite
    from hostcall._export.entry_points import export, load
    from hostcall._ops.emit.bind import Bound, bind
    from hostcall._ops.requested_routes import scope
    from hostcall._ops.settings import configure
    from hostcall._saved.functions import provide, register
    from hostcall._saved.pickled_functions import load_options, save_options
    from hostcall._saved.writing import name_functions
    from hostcall._tools.check.checking import check
    from hostcall._tools.check.report import CheckError, CheckReport, Finding
    from hostcall._tools.explain.explaining import explain
    from hostcall._tools.explain.explanation import Explanation
    from hostcall._tools.inspection import Inspection, inspect
    from hostcall._versions import serving_library

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "BoundedSpec",
    "Callback",
    "CallbackStats",
    "CheckError",
    "CheckReport",
    "ClusterStats",
    "DeviceArray",
    "ExecutorError",
    "ExecutorStats",
    "Explanation",
    "Finding",
    "Inspection",
    "LoweringError",
    "Native",
    "NotExportableError",
    "ProgramError",
    "RecordedError",
    "RecordingError",
    "ReplayError",
    "UnawaitedStats",
    "allow",
    "barrier",
    "bind",
    "callback",
    "check",
    "collect_stats",
    "configure",
    "declare",
    "disable",
    "enable",
    "explain",
    "export",
    "inspect",
    "last_error",
    "load",
    "load_options",
    "map",
    "name_functions",
    "native",
    "partition_pass",
    "provide",
    "record",
    "register",
    "replay",
    "rewrite",
    "save_options",
    "scope",
    "serving_library",
    "stats",
]


# The names that need TensorFlow, by their homes. They are imported when they are asked for, since
# most programs ask for few.
_NAMES = {
    "_ops.requested_routes": "scope",
    "_ops.settings": "configure",
    "_tools.check.checking": "check",
    "_tools.check.report": "CheckError CheckReport Finding",
    "_compiler.graph_pass": "partition_pass rewrite",
    "_tools.explain.explaining": "explain",
    "_tools.explain.explanation": "Explanation",
    "_export.entry_points": "export load",
    "_ops.emit.bind": "Bound bind",
    "_tools.inspection": "Inspection inspect",
    "_saved.functions": "provide register",
    "_saved.pickled_functions": "load_options save_options",
    "_saved.writing": "name_functions",
    "_versions": "serving_library",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Return a public name that needs TensorFlow, and import TensorFlow for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _activate()
    found: object = getattr(_importlib.import_module(f"hostcall.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    # What tab completion shows: `hostcall.jax` once it is imported.
    return sorted([*__all__, "__version__", *(["jax"] if "jax" in globals() else [])])


def _activate() -> None:
    _importlib.import_module("hostcall._with_tensorflow")


def _activate_at_last() -> None:
    """Activate hostcall; on failure only warn, so that an import of TensorFlow does not fail."""
    try:
        _activate()
    except ImportError as error:
        _warnings.warn(str(error), RuntimeWarning, stacklevel=2)


_errors.leave_out_frames_of(__file__)
if enabled_by_environment():
    enable()
if "tensorflow" in _sys.modules:
    _activate()
else:
    _control.when_imported("tensorflow", _activate_at_last)

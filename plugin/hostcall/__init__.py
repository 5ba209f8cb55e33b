"""hostcall: Python functions inside compiled TensorFlow programs.

With `import hostcall`, `tf.py_function`, `tf.numpy_function` and `tf.compat.v1.py_func` work inside
`tf.function(jit_compile=True)`.
"""

from hostcall import _versions
from hostcall_runtime import _error_texts

_versions.check()
_error_texts.leave_out_frames_of(__file__)

from hostcall._callbacks.call_stats import (  # noqa: E402
    CallbackStats,
    ClusterStats,
    ExecutorStats,
    UnawaitedStats,
    collect_stats,
    stats,
)
from hostcall._callbacks.declarations import declare  # noqa: E402
from hostcall._callbacks.requested_routes import configure, scope  # noqa: E402
from hostcall._callbacks.specs import BoundedSpec  # noqa: E402
from hostcall._compiler.graph_pass import partition_pass, rewrite  # noqa: E402
from hostcall._control import disable, enable, enabled_by_environment  # noqa: E402
from hostcall._control import enable_at_import as _enable_at_import  # noqa: E402
from hostcall._explain.explaining import explain  # noqa: E402
from hostcall._explain.explanation import Explanation  # noqa: E402
from hostcall._export.entry_points import export, load  # noqa: E402
from hostcall._frontend.bind import Bound, bind  # noqa: E402
from hostcall._frontend.callback import Callback, callback  # noqa: E402
from hostcall._frontend.mapping import mapped as map  # noqa: A004, E402
from hostcall._frontend.native import Native, native  # noqa: E402
from hostcall._inspect.inspecting import inspect  # noqa: E402
from hostcall._inspect.inspection import Inspection  # noqa: E402
from hostcall._saving.functions import allow, provide, register  # noqa: E402
from hostcall._saving.options import load_options, save_options  # noqa: E402
from hostcall._saving.writing import name_functions  # noqa: E402
from hostcall._serving.serving_library import serving_library  # noqa: E402
from hostcall_runtime._device_arrays import DeviceArray  # noqa: E402
from hostcall_runtime._errors import (  # noqa: E402
    ExecutorError,
    LoweringError,
    NotExportableError,
    ProgramError,
    last_error,
)
from hostcall_runtime._unawaited import barrier  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "BoundedSpec",
    "Callback",
    "CallbackStats",
    "ClusterStats",
    "DeviceArray",
    "ExecutorError",
    "ExecutorStats",
    "Explanation",
    "Inspection",
    "LoweringError",
    "Native",
    "NotExportableError",
    "ProgramError",
    "UnawaitedStats",
    "allow",
    "barrier",
    "bind",
    "callback",
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
    "register",
    "rewrite",
    "save_options",
    "scope",
    "serving_library",
    "stats",
]

if enabled_by_environment():
    _enable_at_import()

"""TensorFlow's side of hostcall, with the public names that need TensorFlow.

It is imported with TensorFlow, whichever of hostcall and TensorFlow comes first.
"""

from __future__ import annotations

import warnings

from hostcall import _versions
from hostcall._versions import serving_library

_versions.check()

from hostcall import _installation  # noqa: E402
from hostcall._callbacks.requested_routes import configure, scope  # noqa: E402
from hostcall._check.checking import check  # noqa: E402
from hostcall._check.report import CheckError, CheckReport, Finding  # noqa: E402
from hostcall._compiler.graph_pass import partition_pass, rewrite  # noqa: E402
from hostcall._explain.explaining import explain  # noqa: E402
from hostcall._explain.explanation import Explanation  # noqa: E402
from hostcall._export.entry_points import export, load  # noqa: E402
from hostcall._frontend import framework  # noqa: E402
from hostcall._frontend.bind import Bound, bind  # noqa: E402
from hostcall._inspect.inspecting import inspect  # noqa: E402
from hostcall._inspect.inspection import Inspection  # noqa: E402
from hostcall._saving.functions import allow, provide, register  # noqa: E402
from hostcall._saving.pickled_functions import load_options, save_options  # noqa: E402
from hostcall._saving.writing import name_functions  # noqa: E402
from hostcall._tf import features  # noqa: E402
from hostcall_runtime import _patching  # noqa: E402

__all__ = [
    "Bound",
    "CheckError",
    "CheckReport",
    "Explanation",
    "Finding",
    "Inspection",
    "allow",
    "bind",
    "check",
    "configure",
    "explain",
    "export",
    "inspect",
    "load",
    "load_options",
    "name_functions",
    "partition_pass",
    "provide",
    "register",
    "rewrite",
    "save_options",
    "scope",
    "serving_library",
]

framework.enter()
try:
    _patching.add(_installation.TABLE)
except features.MissingNameError as error:  # a program that imports hostcall runs on
    warnings.warn(str(error), RuntimeWarning, stacklevel=2)

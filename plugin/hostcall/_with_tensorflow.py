"""TensorFlow's side of hostcall, with the public names that need TensorFlow.

It is imported with TensorFlow, whichever of hostcall and TensorFlow comes first. `hostcall` takes
its public names from here when they are asked for.
"""
# ruff: noqa: E402, F401

from __future__ import annotations

import warnings

from hostcall import _versions
from hostcall._versions import serving_library

_versions.check()

from hostcall import _installation
from hostcall._callbacks.requested_routes import scope
from hostcall._callbacks.settings import configure
from hostcall._check.checking import check
from hostcall._check.report import CheckError, CheckReport, Finding
from hostcall._compiler.graph_pass import partition_pass, rewrite
from hostcall._explain.explaining import explain
from hostcall._explain.explanation import Explanation
from hostcall._export.entry_points import export, load
from hostcall._frontend import framework
from hostcall._frontend.bind import Bound, bind
from hostcall._inspect import Inspection, inspect
from hostcall._saving.functions import allow, provide, register
from hostcall._saving.pickled_functions import load_options, save_options
from hostcall._saving.writing import name_functions
from hostcall._tf import features
from hostcall_runtime import _patching

framework.enter()
try:
    _patching.add(_installation.TABLE)
except features.MissingNameError as error:  # a program that imports hostcall runs on
    warnings.warn(str(error), RuntimeWarning, stacklevel=2)

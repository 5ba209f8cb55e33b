"""TensorFlow's side of hostcall: what `import hostcall` changes in TensorFlow.

It is imported with TensorFlow, whichever of hostcall and TensorFlow comes first.
"""
# ruff: noqa: E402

import warnings

from hostcall import _versions

_versions.check()

from hostcall import _control, _installation
from hostcall._ops.emit import framework
from hostcall._tf import features
from hostcall_runtime import _patching

framework.enter()
if not _control.enabled_by_environment():
    _installation.NOTE.install()
try:
    _patching.add(_installation.TABLE)
except features.MissingNameError as error:  # a program that imports hostcall runs on
    warnings.warn(str(error), RuntimeWarning, stacklevel=2)

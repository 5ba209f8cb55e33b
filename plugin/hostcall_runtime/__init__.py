"""The framework-independent runtime that compiled programs call, and its errors.

`hostcall` and `hostcall_mlir` build on it. It imports neither TensorFlow nor JAX.
"""

from hostcall_runtime._errors import DeadlineExceededError, ResultError, last_error
from hostcall_runtime._registry import Target, prepared, register
from hostcall_runtime._threads import within

__all__ = [
    "DeadlineExceededError",
    "ResultError",
    "Target",
    "last_error",
    "prepared",
    "register",
    "within",
]

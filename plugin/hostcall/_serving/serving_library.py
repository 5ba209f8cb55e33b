"""The path of the library for servers without Python."""

from __future__ import annotations

from hostcall_runtime import _library

_NAME = "libhostcall_serving.so"


def serving_library() -> str:
    """Return the path of the library that runs saved models in processes without Python.

    `TF_LoadLibrary` of TensorFlow's C API takes it, and so do servers that load libraries of ops.

    Returns:
      The path of `libhostcall_serving.so`, which was built for the installed TensorFlow.

    Raises:
      FileNotFoundError: when the library is missing, with the commands that build it.

    Examples:
      >>> hostcall.serving_library().endswith("libhostcall_serving.so")
      True
    """
    return str(_library.file_beside("hostcall", _NAME))

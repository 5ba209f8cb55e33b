"""Where the library for servers without Python is."""

from __future__ import annotations

from hostcall_runtime import _library

_NAME = "libhostcall_serving.so"


def serving_library() -> str:
    """The path of the library that runs saved models in processes without Python.

    `TF_LoadLibrary` of TensorFlow's C API takes it, and servers that load libraries of ops.

    Returns:
      The path of `libhostcall_serving.so`, which was built for the TensorFlow that is installed.

    Raises:
      FileNotFoundError: when it is not there, with the commands that build it.

    Examples:
      >>> hostcall.serving_library().endswith("libhostcall_serving.so")
      True
    """
    return str(_library.file_beside("hostcall", _NAME))

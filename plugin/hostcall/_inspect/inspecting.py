"""`hostcall.inspect`: the Python functions that a file names, without importing or running any."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hostcall._inspect import files
from hostcall._inspect.inspection import Inspection, InspectionError

_GRAPHS: dict[str, Callable[[Path], Inspection]] = {
    ".pb": files.of_graph,
    ".pbtxt": files.of_graph,
    ".meta": files.of_graph,
    ".keras": files.of_model,
}
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """List the Python functions that a file names, without importing or running any.

    `print` shows the result as a table.

    Args:
      path: the path of a SavedModel, or of a program of `hostcall.export`, both directories; of a
        Keras model (`.keras`), a graph (`.pb`, `.pbtxt`) or a meta graph of TensorFlow 1 (`.meta`).

    Returns:
      An `Inspection`: for each function its name, its calls with their arguments, the declared
      options, whether it can be found here and is allowed, and otherwise the lines to write.

    Raises:
      ValueError: when the path is not one of these, or cannot be read.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
      ... def program(x):
      ...     return tf.numpy_function(np.sort, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.program = program
      >>> tf.saved_model.save(module, directory)
      >>> (function,) = hostcall.inspect(directory).functions
      >>> function.place, function.uses[0].arguments
      ('numpy:sort', ('float32(3,)',))
    """
    found = Path(os.fspath(path))
    if found.name in _SAVED_MODEL:
        found = found.parent
    if found.is_dir():
        if any((found / name).is_file() for name in _SAVED_MODEL):
            return files.of_saved_model(found)
        if (found / "manifest.json").is_file():
            return files.of_program(found)
        raise InspectionError(
            f"{found} holds no SavedModel (saved_model.pb), and no program of hostcall.export "
            "(manifest.json)."
        )
    if not found.is_file():
        raise InspectionError(f"{found} {'is no file' if found.exists() else 'does not exist'}.")
    if found.suffix not in _GRAPHS:
        kinds = ", ".join(_GRAPHS)
        raise InspectionError(f"{found} is no directory, and its name ends in none of {kinds}.")
    return _GRAPHS[found.suffix](found)

"""Exported programs: `hostcall.export` and `hostcall.load`.

They need JAX's MLIR, which no other part of hostcall needs, so each call imports it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hostcall._tf import autograph

if TYPE_CHECKING:
    from hostcall._export.loading import LoadedFunction
    from hostcall_mlir import Program


@autograph.do_not_convert
def export(function: object, *specs: Any, variables: str = "constants") -> Program:
    """Compile a function to a program for export, which names its Python functions.

    `hostcall_mlir.load` runs it in processes without TensorFlow. `hostcall.load` makes it a
    TensorFlow function again.

    Args:
      function: a `tf.function`, or an object that can become one (a Python function of tensors, a
        Keras model); or the result of `get_concrete_function`, without specs.
      *specs: the arguments of `get_concrete_function`: for each argument a `tf.TensorSpec` of known
        shape, an example tensor or array, or a structure of these. Any other value, for example
        `training=False` given as `False`, is fixed in the program.
      variables: how `tf.Variable`s are exported. `"constants"` writes their present values into the
        program, which then must not assign them. `"inputs"` saves the values beside the program:
        after loading, they can be set, and show the program's assignments.

    Returns:
      The `Program`: its `artifact` (a portable artifact of StableHLO 1.13), its readable `text`,
      its `manifest` (the callbacks: qualified name, signature, the dtypes and shapes of each call,
      effects in their order), and `save(directory)`.

    Raises:
      ImportError: when JAX, whose MLIR this needs, is not installed.
      TypeError: when `function` is not a function, or one of JAX's.
      hostcall.NotExportableError: when a callback has no name by which another process finds it
        (one error lists all of them, and tells how to name them), when the size of an argument is
        unknown, when the function assigns variables that are exported as constants, or when a part
        of it cannot be compiled or exported. A ValueError.
      ValueError: for another `variables`.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> exported = hostcall.export(program, tf.TensorSpec([3], tf.float32))
      >>> [callback.name for callback in exported.manifest.callbacks]
      ['numpy:sort']
    """
    program: Program = _module("exporting").export(function, specs, variables)
    return program


@autograph.do_not_convert
def load(
    directory: str | os.PathLike[str],
    *,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
    imports: bool = True,
) -> LoadedFunction:
    """Load a program that `hostcall.export` has saved, as a TensorFlow function.

    All files are checked before anything is imported. Loading imports functions by the names in the
    program, and running the program calls them. So they are imported only from the modules that
    `hostcall.allow` or `HOSTCALL_ALLOW` names.

    Args:
      directory: the directory that it was saved to.
      callbacks: functions for callbacks, by their names in the program; they take precedence over
        functions that could be imported.
      imports: False imports nothing, so every function must be in `callbacks`.

    Returns:
      A `tf.Module` that is called like the exported function, with tensors or arrays of exactly its
      dtypes and shapes, or Python values, in the structure of its arguments: eagerly, in a
      `tf.function`, with `jit_compile=True` or without. It has `manifest`, `text` and, where
      variables are inputs, `variables`, and no gradient. Exceptions of its functions are raised as
      for any callback; `hostcall.last_error` returns them.

    Raises:
      ImportError: when JAX, whose MLIR this needs, is not installed.
      hostcall.ProgramError: when a file is missing, damaged or of a newer format, or functions
        are missing, not allowed, or have other parameters than at export; the message lists all of
        these. A ValueError, and the same class as hostcall_mlir.ProgramError.
      TypeError: when `callbacks` is not a dict.

    Examples:
      >>> import tempfile
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> with tempfile.TemporaryDirectory() as directory:
      ...     hostcall.export(program, tf.TensorSpec([3], tf.float32)).save(directory)
      ...     hostcall.allow("numpy:sort")
      ...     loaded = hostcall.load(directory)
      >>> loaded(tf.constant([3.0, 1.0, 2.0])).numpy()
      array([2., 4., 6.], dtype=float32)
    """
    loaded: LoadedFunction = _module("loading").load(directory, callbacks or {}, imports)
    return loaded


def _module(name: str) -> ModuleType:
    """Import a module of hostcall that needs optional packages."""
    try:
        return importlib.import_module(f"hostcall._export.{name}")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"hostcall.export and hostcall.load need {error.name}, which is not installed here: "
            "pip install 'hostcall[jax]'",
            name=error.name,
        ) from error

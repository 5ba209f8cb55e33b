"""Exported programs: `hostcall.export` and `hostcall.load`.

They need JAX's MLIR, which hostcall does without elsewhere: it is imported when one is called.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hostcall._tf import autograph

if TYPE_CHECKING:
    from hostcall._export.loading import LoadedFunction
    from hostcall_mlir import Program


@autograph.do_not_convert
def export(function: Any, *specs: Any, variables: str = "constants") -> Program:
    """Compiles a function to a program that can be exported, the Python functions in it by name.

    `hostcall_mlir.load` runs it in processes without TensorFlow, `hostcall.load` makes it a
    function of TensorFlow's again.

    Args:
      function: a `tf.function` or what becomes one: a Python function of tensors, a Keras model;
        or what `get_concrete_function` returns, without specs.
      *specs: what `get_concrete_function` takes: for each argument a `tf.TensorSpec` of known
        shape, a tensor or array like those to come, or a structure of these. What is none of them,
        such as `training=False` given as `False`, is fixed in the program.
      variables: what becomes of the values of `tf.Variable`s. `"constants"` writes those that they
        have now into the program, which may then assign none; as `"inputs"` they are saved beside
        it, and whoever loads it can set them, and sees what it assigns.

    Returns:
      The `Program`: its `artifact` (a portable artifact of StableHLO 1.13), its readable `text`,
      its `manifest` (the callbacks: qualified name, signature, the dtypes and shapes of each call,
      effects in their order), and `save(directory)`.

    Raises:
      ImportError: when JAX, whose MLIR this needs, is not installed.
      TypeError: when `function` is no function, or one of JAX's.
      hostcall.NotExportableError: when a callback has no name by which another process finds it
        (one error that lists all of them, and says how to give one), when the size of an argument
        is not known, when the function assigns variables that are to be constants, or when
        something in it cannot be compiled or exported. A ValueError.
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
    """Loads a program that `hostcall.export` has saved, as a function of TensorFlow's.

    All files are checked before anything is imported. Functions are imported by the names that the
    program has for them, and called when it runs: load only programs that you would run.

    Args:
      directory: where it was saved.
      callbacks: functions for callbacks, by the names that the program has for them; they come
        before those that could be imported.
      imports: False says to import nothing, so that every function has to be in `callbacks`.

    Returns:
      A `tf.Module` that is called like the exported function, with tensors or arrays of just its
      dtypes and shapes, or Python values, in the structure of its arguments: eagerly, in a
      `tf.function`, with `jit_compile=True` or without. It has `manifest`, `text` and, where
      variables are inputs, `variables`, and no gradient. What its functions raise comes as from any
      callback; `hostcall.last_error` returns it.

    Raises:
      ImportError: when JAX, whose MLIR this needs, is not installed.
      hostcall.ProgramError: when a file is missing, damaged or of a newer format, or functions
        are missing or take other parameters than when the program was exported; the message lists
        all of these. A ValueError, and the same class as hostcall_mlir.ProgramError.
      TypeError: when `callbacks` is no dict.

    Examples:
      >>> import tempfile
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> with tempfile.TemporaryDirectory() as directory:
      ...     hostcall.export(program, tf.TensorSpec([3], tf.float32)).save(directory)
      ...     loaded = hostcall.load(directory)
      >>> loaded(tf.constant([3.0, 1.0, 2.0])).numpy()
      array([2., 4., 6.], dtype=float32)
    """
    loaded: LoadedFunction = _module("loading").load(directory, callbacks or {}, imports)
    return loaded


def _module(name: str) -> Any:
    """A module of hostcall's that needs what not everybody has installed."""
    try:
        return importlib.import_module(f"hostcall._export.{name}")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"hostcall.export and hostcall.load need {error.name}, which is not installed here: "
            "pip install 'hostcall[jax]'",
            name=error.name,
        ) from error

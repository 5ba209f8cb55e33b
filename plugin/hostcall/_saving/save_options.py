"""The options that users set while they save and load models."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_pickles = contextvars.ContextVar("hostcall_save_pickles", default=False)
_leave = contextvars.ContextVar("hostcall_allow_pickle", default=False)


@contextlib.contextmanager
def save_options(*, pickle: bool = False) -> Iterator[None]:
    """Set how this thread saves models inside the context.

    The options hold for every way to write a SavedModel: `tf.saved_model.save`, Keras's
    `Model.export` and `tf.compat.v1.saved_model`.

    Args:
      pickle: True makes the SavedModel carry Python functions that have no name and that other
        processes cannot import: lambdas, nested functions, methods of objects, and functions of
        the running script. They are pickled by cloudpickle (`pip install 'hostcall[pickle]'`) into
        the model's folder `assets.extra/hostcall`. The objects that a function refers to are copied
        into its pickle, or named there if they can be imported. The model then runs only with the
        same minor version of Python, and needs `hostcall.load_options(allow_pickle=True)`.

    Raises:
      ImportError: by the call that saves a model, when cloudpickle is not installed.
      ValueError: by the call that saves a model, when a function cannot be pickled. One error lists
        all these functions, and the objects in them that cannot be pickled. A `tf.Variable` is
        never pickled: the function would change a copy of it.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
      ... def double(x):
      ...     return tf.numpy_function(lambda v: v * 2, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.double = double
      >>> with hostcall.save_options(pickle=True):
      ...     tf.saved_model.save(module, directory)
    """
    with _set(_pickles, pickle is True):
        yield


@contextlib.contextmanager
def load_options(*, allow_pickle: bool = False) -> Iterator[None]:
    """Set how this thread loads models inside the context.

    Args:
      allow_pickle: True allows calls of the functions that the model carries as pickles. A pickle
        can run any code when it is read, so allow it only for files whose makers you trust.
        A pickle is read at the first call of its function, which may come after the context. Each
        load needs the option anew: models that are loaded outside call no pickled functions.

    Raises:
      hostcall.LoweringError: by the call that loads a model, when one of its pickles is missing or
        was altered. Then no pickle is read.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
      ... def halve(x):
      ...     return tf.numpy_function(lambda v: v / 2, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.halve = halve
      >>> with hostcall.save_options(pickle=True):
      ...     tf.saved_model.save(module, directory)
      >>> with hostcall.load_options(allow_pickle=True):  # in any process
      ...     model = tf.saved_model.load(directory)
      >>> float(model.halve(tf.constant(3.0)))
      1.5
    """
    with _set(_leave, allow_pickle is True):
        yield


def pickles_functions() -> bool:
    """Return whether models that are saved now carry functions without a name."""
    return _pickles.get()


def allows_pickles() -> bool:
    """Return whether models that are loaded now may call the functions that they carry."""
    return _leave.get()


@contextlib.contextmanager
def _set(variable: contextvars.ContextVar[bool], value: bool) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)

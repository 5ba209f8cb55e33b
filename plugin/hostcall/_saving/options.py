"""What users ask for while they save and load models."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_pickles = contextvars.ContextVar("hostcall_save_pickles", default=False)
_leave = contextvars.ContextVar("hostcall_allow_pickle", default=False)


@contextlib.contextmanager
def save_options(*, pickle: bool = False) -> Iterator[None]:
    """Sets how the models are saved that this thread saves inside.

    It holds for all that writes a SavedModel: `tf.saved_model.save`, Keras's `Model.export` and
    `tf.compat.v1.saved_model`.

    Args:
      pickle: True carries Python functions in the SavedModel which other processes cannot import,
        and which have no name: lambdas, functions in functions, methods of objects, and those of
        the script that runs. They lie in its folder `assets.extra/hostcall`, as pickles of
        cloudpickle's: `pip install 'hostcall[pickle]'`. What a function refers to is copied into
        its pickle, or named there if it can be imported. Such a model runs with the same minor
        version of Python alone, and asks for `hostcall.load_options(allow_pickle=True)`.

    Raises:
      ImportError: by what saves a model, when cloudpickle is not installed.
      ValueError: by what saves a model, when a function cannot be pickled. One error lists all of
        them, and what in them cannot be. A `tf.Variable` is never pickled: the function would
        change a copy of it.

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
    """Sets how the models are loaded that this thread loads inside.

    Args:
      allow_pickle: True lets the functions be called which the model holds as pickles. A pickle
        can run anything when it is read, so allow it for files whose makers you trust, and for
        these alone. A pickle is read at the first call of its function, at any later time. Each
        load asks for it anew; models that are loaded outside call no pickled functions.

    Raises:
      hostcall.LoweringError: by what loads a model, when one of its pickles is missing or was
        altered. None is read, then.

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
    """Whether models that are saved now carry functions without a name."""
    return _pickles.get()


def allows_pickles() -> bool:
    """Whether functions that models carry may be called if they are loaded now."""
    return _leave.get()


@contextlib.contextmanager
def _set(variable: contextvars.ContextVar[bool], value: bool) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)

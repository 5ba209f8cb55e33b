"""Compiled functions that create variables whose initial values depend on their arguments.

TensorFlow initializes variables before the function runs, if it can lift their initial values out
of it. Else it runs the trace that creates and initializes them, and refuses to compile this trace.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall._tf import features
from hostcall._tf.patches import Replacement, attribute
from hostcall._tf.types import TracingFunction
from hostcall_runtime._patching import Patch

_REFUSAL = "We failed to lift variable creations out of this tf.function"


def first_calls(may_run: Callable[[], bool]) -> Patch:
    """Return the patch that runs functions which TensorFlow refuses, on the host if XLA does, too.

    `may_run` tells whether the user allows that.
    """

    def wrap(method: Callable[..., Any], patch: Replacement) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except tf.errors.UnimplementedError as error:
                refused = error.message.startswith(_REFUSAL)
                if not (refused and patch.installed and may_run()):
                    raise
            return _initialize_and_run(self, functools.partial(method, self), args, kwargs)

        # Traced ops keep the frames of a call, for messages. TensorFlow leaves out frames of its
        # own files, so this frame gets the name of one.
        file = inspect.getfile(features.PolymorphicFunction)
        call.__code__ = call.__code__.replace(co_filename=file)
        return functools.update_wrapper(call, method)

    why = "TensorFlow compiles no function whose variables get initial values of its arguments."
    return attribute(features.PolymorphicFunction, "_call", wrap, features.FIRST_CALLS, why)


def _initialize_and_run(
    function: TracingFunction, run: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Call a `tf.function` that has created variables, but has initialized none of them.

    `run` calls it without creating variables.
    """
    bound = function._function_type.bind_with_defaults(args, kwargs, function._default_values)

    def create() -> Any:
        return function._concrete_variable_creation_fn(*bound.args, **bound.kwargs)

    if tf.executing_eagerly():
        return create()
    # The graph may run many times, and only its first run may set the initial values.
    variables = [reference() for reference in function._created_variables]
    initialized = [tf.raw_ops.VarIsInitializedOp(resource=v.handle) for v in variables]
    return tf.cond(tf.reduce_all(initialized), lambda: run(*args, **kwargs), create)

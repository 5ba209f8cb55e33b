"""TensorFlow as `_functions.frameworks` knows it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._frontend import callback_calls, handler_programs
from hostcall._functions import call_stats, frameworks, source_location
from hostcall._functions.callback import Callback
from hostcall._functions.mapping import mapped
from hostcall._functions.native_functions import Native
from hostcall._tf import autograph, compilation_cache, function_names, tensor_structures
from hostcall_runtime import _library, _stable_ids


class _TensorFlow:
    """See `frameworks.TensorFlow`."""

    call = staticmethod(callback_calls.call)
    check_handler = staticmethod(handler_programs.check)
    run_handler = staticmethod(handler_programs.run)
    shape = staticmethod(tf.TensorShape)
    spec = staticmethod(tf.TensorSpec)
    dtype = staticmethod(tf.as_dtype)

    def holds(self, value: object) -> bool:
        return isinstance(value, tf.Tensor | tf.Variable | tensor_structures.CompositeTensor)

    def is_symbolic(self, value: object) -> bool:
        return bool(tf.is_symbolic_tensor(value))

    def is_building(self) -> bool:
        return not tf.executing_eagerly()

    def as_tensors(self, structure: object) -> Any:
        return tf.nest.map_structure(tf.convert_to_tensor, structure)


def enter() -> None:
    """Has callbacks and native code take tensors, and messages name the lines that users wrote.

    And lets TensorFlow's cache of compiled programs find those with callbacks.
    """
    frameworks.enter_tensorflow(_TensorFlow())
    source_location.read_with(autograph.stack, autograph.original_location)
    call_stats.count_clusters(_compilations)
    autograph.leave_alone(Callback, Native, mapped)
    _stable_ids.caches.append(compilation_cache.is_on)


def _compilations(reset: bool) -> list[tuple[str, int, int]]:
    counts: list[tuple[str, int, int]]
    counts = _library.load("hostcall._tensorflow").compilations(reset)
    return [(function_names.without_digests(name), done, plain) for name, done, plain in counts]

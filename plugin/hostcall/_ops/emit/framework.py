"""TensorFlow's implementation of `_functions.frameworks`, and calls of callbacks on tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._functions import call_stats, callback, frameworks, source_location
from hostcall._functions.callback import Callback, mapped
from hostcall._functions.native_code import FfiHandler, Native
from hostcall._functions.user_function import UserFunction
from hostcall._ops import requested_routes, structures
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._ops.emit import gradients, missing_gradients, script_ops
from hostcall._tf import autograph, concrete_functions, eager_execution, features, token_registry
from hostcall._tf.graph import function_names
from hostcall_runtime import _library, _registry

_runtime = _library.load("hostcall_runtime._runtime")

# The exceptions for XLA's errors; script ops map these exceptions back to the same errors.
_EXCEPTIONS = (
    (tf.errors.InvalidArgumentError, ValueError),
    (tf.errors.ResourceExhaustedError, MemoryError),
    (tf.errors.UnimplementedError, NotImplementedError),
)

_TENSORS = (tf.Tensor, tf.Variable, features.CompositeTensor)

_OTHER_VERSION = (
    "the handler in the capsule is for another version of XLA's FFI than that of TensorFlow. Build "
    "it with the headers in tf.sysconfig.get_include()."
)


# Autograph must not convert it, just as TensorFlow's own functions.
@autograph.do_not_convert
def call_on_tensors(user: UserFunction, args: tuple[Any, ...]) -> object:
    """Call a callback on tensors, and return tensors in the structure of the declared result."""
    tensors = tf.nest.map_structure(_as_tensor, list(args), expand_composites=user.takes_tensors)
    inputs = structures.read_inputs(tensors, user.takes_tensors, pack_lists=False)
    specs = structures.specs_for(user.options.result, inputs, user.function)
    outputs = structures.Outputs(specs, strict=True)
    emit = functools.partial(_emit, user)
    grad = user.grad
    if missing_gradients.wants_one(user, inputs.flat):
        grad = missing_gradients.warning_gradient(user)
    if grad is None:
        return emit(inputs, outputs)
    return gradients.with_gradient(emit, grad, inputs, outputs)


def _emit(user: UserFunction, inputs: structures.Inputs, outputs: structures.Outputs) -> object:
    function = callback.parts(user.function)[0]
    name = str(user.given_name or getattr(function, "__name__", ""))
    # A valid name of a TensorFlow op, or None if nothing is left of it.
    valid = re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip("_.-") or None
    return script_ops.emit_or_run(user, inputs, outputs, valid)


def _as_tensor(value: object) -> tf.Tensor:
    if isinstance(value, tf.Variable):
        return value
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"hostcall.callback: {value!r}, which is passed by position, cannot become a tensor: "
            f"{error} Pass by keyword what is not a tensor: it reaches the function as it is."
        ) from error


def check_handler(capsule: object) -> int:
    """Check a handler for XLA's stage of execution, and return its address."""
    try:
        tensorflow = _library.load("hostcall._tensorflow")
        described = tensorflow.describe_handler(capsule)
    except TypeError as error:
        raise TypeError(
            f"hostcall.native: the capsule is named {str(error)!r}. One with a handler of XLA's "
            "FFI has no name, as that of jax.ffi.pycapsule, or is named "
            '"xla._CUSTOM_CALL_TARGET".'
        ) from None
    except ValueError as error:
        raise ValueError(f"hostcall.native: {_OTHER_VERSION} It says: {error}") from None
    address: int
    address, *version, makes_state = described
    # An XLA of FFI version 0.1 never calls the handler; hostcall's own handler, of 0.2, does.
    major, minor = max(tensorflow.ffi_api_version(), _runtime.ffi_api_version())
    if version[0] != major or version[1] > minor:
        raise ValueError(
            f"hostcall.native: {_OTHER_VERSION} It is of version {version[0]}.{version[1]}, and "
            f"TensorFlow's XLA of {major}.{minor}."
        )
    if makes_state:
        raise ValueError(
            "hostcall.native: the handler makes a state, and so is one for the stage of "
            "instantiation. Pass the handler for the stage of execution; it gets no state."
        )
    return address


def run_handler(
    native: Native, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> None:
    """Run a compiled program that calls the handler of native code, and store its results."""
    with eager_execution.eager_mode(), tf.device("CPU"):
        program = _program(native, _specs(inputs), _specs(results))
        try:
            returned = program(*map(tf.convert_to_tensor, inputs))
        except tf.errors.OpError as error:
            kinds = (made for kind, made in _EXCEPTIONS if isinstance(error, kind))
            raise next(kinds, RuntimeError)(error.message) from error
    for array, tensor in zip(results, tf.nest.flatten(returned), strict=bool(results)):
        array[...] = tensor.numpy()


def _program(
    native: Native, specs: list[tf.TensorSpec], declared: list[tf.TensorSpec]
) -> Callable[..., Any]:
    """Return the program that calls native code for these specs; each is traced once."""
    assert isinstance(native.code, FfiHandler)
    programs = native.code.programs
    key = (*specs, None, *declared)
    if key not in programs:
        program = tf.function(
            lambda *tensors: tf.numpy_function(native, tensors, declared),
            jit_compile=True,
            autograph=False,
        )
        # A partitioned function would call `run_handler` again, without end.
        with requested_routes.scope(route=requested_routes.CUSTOM_CALL):
            programs[key] = program.get_concrete_function(*specs)
    called: Callable[..., Any] = programs[key]
    return called


def _specs(arrays: Sequence[np.ndarray]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)) for array in arrays]


def _traced(is_meant: Callable[[object], bool]) -> list[tuple[str, object]]:
    """Return the description and the options of each call of a function that a graph has."""
    return [
        (spec.description, spec.options)
        for spec in token_registry.all_present()
        if isinstance(spec, CallbackSpec)
        and not isinstance(spec, gradients.DerivedSpec)
        and spec.op is not None
        and spec.op() is not None
        and is_meant(spec.function)
    ]


def enter() -> None:
    """Connect TensorFlow: callbacks and native code take tensors, messages name users' lines."""
    frameworks.enter(
        frameworks.TensorFlow(
            call=call_on_tensors,
            check_handler=check_handler,
            run_handler=run_handler,
            holds=lambda value: isinstance(value, _TENSORS),
            is_symbolic=tf.is_symbolic_tensor,
            is_building=lambda: not tf.executing_eagerly(),
            as_tensors=functools.partial(tf.nest.map_structure, tf.convert_to_tensor),
            shape=tf.TensorShape,
            dtype=tf.as_dtype,
            spec=tf.TensorSpec,
            traced=_traced,
        )
    )
    if features.LOCATIONS.available:
        source_location.read_with(autograph.stack, autograph.original_location)
    call_stats.count_clusters(_compilations)
    autograph.leave_alone(Callback, Native, mapped)
    _registry.caches.append(concrete_functions.is_on)


def _compilations(reset: bool) -> list[tuple[str, int, int]]:
    counts = _library.load("hostcall._tensorflow").compilations(reset)
    return [(function_names.without_digests(name), done, plain) for name, done, plain in counts]

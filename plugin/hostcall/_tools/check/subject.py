"""The subject of a check: a function, its declaration, and one way to call it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import operator
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._functions import callback as functions_callback
from hostcall._functions import source_location
from hostcall._functions.callback import Callback
from hostcall._functions.declarations import declaration_of
from hostcall._functions.native_code import Native
from hostcall._functions.options import Options, check_callback, check_function
from hostcall._functions.user_function import CALLBACK, NUMPY_FUNCTION, PY_FUNCTION, UserFunction
from hostcall._ops import array_specs, result_shapes, structures
from hostcall._ops.structures import Spec, is_leaf
from hostcall._tf import eager_execution, features, token_registry
from hostcall._tools.check.arguments import GivenArguments, Sample
from hostcall_runtime import _device_arrays, prepared

_NOTHING = (
    "hostcall.check: nothing is declared of the results of {function}. Write, for example, "
    "hostcall.check({name}, ..., result=tf.TensorSpec([3], tf.float32)), or declare it: "
    "hostcall.declare({name}, result=...)."
)
_NO_KEYWORDS = (
    "hostcall.check: kwargs= is for a hostcall.callback, and script ops pass no arguments by "
    "keyword. Write hostcall.check(hostcall.callback({name}, result=...), ..., kwargs=...)."
)
_UNSIZED = (
    "out=True makes the arrays for the results before the call, and the sizes of result {index} "
    "are not declared"
)

POISON = 0x55  # the bytes that fill the arrays of `out` before a call


class UnsizedError(ValueError):
    """Error: the sizes of results that a function with `out=True` writes are not known."""


_NO_ARGUMENTS = Sample(())


@dataclasses.dataclass(frozen=True, eq=False)
class Called:
    """The outcome of one call."""

    error: Exception | None = None  # the exception of the function, or None
    returned: Any = None  # the value that it has returned
    outs: tuple[np.ndarray, ...] = ()  # the arrays for its results, with `out=True`
    kept: bool = False  # whether a reference is left to an array that the function was lent
    wrong_out: bool = False  # whether the function has returned a value that is not `out`
    arguments: tuple[Any, ...] = ()  # the arrays or tensors that it was called with, flat
    sample: Sample = _NO_ARGUMENTS  # what `Subject.call` was given
    seconds: float = 0.0  # the time that `Subject.call` took

    @property
    def raised(self) -> str:
        """The exception in one line."""
        return "" if self.error is None else described(self.error)


def described(error: BaseException) -> str:
    """Return an exception's class and the beginning of its text, in one line."""
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """Return the beginning of an exception's text, in one line."""
    return [*str(error).strip().splitlines(), ""][0][:300]


def subject_of(
    function: object,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: object,
    kind: str | None,
    stateful: bool | None,
) -> Subject:
    """Return the subject of a check, or raise a TypeError for arguments that do not fit it."""
    if isinstance(function, Callback):
        given = {"result": result, "kind": kind, "stateful": stateful}
        for option, value in given.items():
            if value is not None:
                raise TypeError(
                    f"hostcall.check: {option}= is for plain functions, and {function!r} says it "
                    f"itself. Remove {option}=."
                )
        return _of_callback(function, args, kwargs)
    if kwargs:
        raise TypeError(_NO_KEYWORDS.format(name=getattr(function, "__name__", "f")))
    if isinstance(function, Native) and stateful is None:
        stateful = False  # it runs no Python
    return _of_function(function, args, result, kind or "numpy", stateful)


def _of_callback(
    callback: Callback[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Subject:
    inputs, user = callback._sorted(args, dict(kwargs))
    program = callback
    if kwargs:
        program = Callback(
            user.function, user.options, callback.kind, callback.stateful, None, user.grad
        )
    return Subject(user, inputs, program)


def _of_function(
    function: Any, args: tuple[Any, ...], result: object, kind: str, stateful: bool | None
) -> Subject:
    if hasattr(function, "get_concrete_function"):
        raise TypeError(
            f"hostcall.check tries a function that programs call, and {function!r} is a program. "
            "hostcall.explain shows what becomes of it."
        )
    check_function(function, "hostcall.check")
    options = declaration_of(function) or Options()
    eager = kind == "eager"
    if stateful is None:
        stateful = eager or not (options.pure or options.table is not None)
    check_callback(kind, None, None, stateful, None)
    result = _with_specs(result)
    program: Callback[..., Any] | None = None
    if options.result is None:
        if result is None:
            name = getattr(function, "__name__", "f")
            where = source_location.of_function(function)
            raise TypeError(_NOTHING.format(function=where, name=name))
        options = dataclasses.replace(options, result=result)
        program, result = Callback(function, options, kind, stateful, None, None), None
    called_as = PY_FUNCTION if eager else NUMPY_FUNCTION
    user = UserFunction(
        function, options, called_as=called_as, takes_tensors=eager, stateful=stateful
    )
    return Subject(user, args, program, result)


def _with_specs(result: object) -> object:
    """Return a declared result with specs in the place of dtypes."""

    def with_spec(leaf: object) -> object:
        is_class = isinstance(leaf, type) and issubclass(leaf, np.generic)
        is_dtype = is_class or isinstance(leaf, tf.DType | np.dtype)
        return tf.TensorSpec(None, tf.as_dtype(leaf)) if is_dtype else leaf

    return tf.nest.map_structure(with_spec, result)


class Subject:
    """A function with its declaration and the arguments of its trial calls."""

    def __init__(
        self,
        user: UserFunction,
        args: Sequence[Any],
        program: Callback[..., Any] | None = None,
        dtypes: Any = None,
    ) -> None:
        self.user = user  # it takes all arguments by position
        self.options, self.function, self.eager = user.options, user.function, user.takes_tensors
        self.is_callback = user.called_as == CALLBACK
        self.calls = 0  # so far
        # What calls the function on tensors, None for a script op; and the user's `result` with
        # dtypes for a declaration of shapes alone, or None.
        self._program, self._dtypes = program, dtypes
        self._structure = features.convert_variables_to_tensors(list(args))
        leaves = tf.nest.flatten(self._structure)
        parts = [
            part
            for leaf in leaves
            for part in tf.nest.flatten(leaf, expand_composites=_is_composite(leaf))
        ]
        self.arguments = GivenArguments(parts, any(map(_is_composite, leaves)))
        self.inputs = structures.read_inputs(
            self.nested(self.arguments.base.tensors), self.eager, pack_lists=False
        )
        result = self.options.result if dtypes is None else dtypes
        self.outputs = structures.Outputs(self._results(result), strict=True)
        self._shape_function = result_shapes.make_shape_function(
            self.options, self.function, self.inputs, self.outputs
        )

    def _results(self, result: Any) -> object:
        """Return the structure of the results; that of one call if the shape function fails."""
        if self.has_shape_function and self._dtypes is None:
            try:
                result(*self.inputs.pack_specs(self.arguments.base.specs))
            except Exception:  # the check of shapes reports it
                return tf.nest.map_structure(_spec_of, self.call(self.arguments.base).returned)
        return structures.specs_for(result, self.inputs, self.function)

    @property
    def description(self) -> str:
        """The function and where it is defined."""
        return source_location.of_function(self.function)

    @property
    def user_function(self) -> Callable[..., Any]:
        """The user's function, without bound keyword arguments."""
        return functions_callback.parts(self.function)[0]

    @property
    def name(self) -> str:
        """The function's name, or "function" if it has none that is an identifier."""
        name = str(getattr(self.user_function, "__name__", ""))
        return name if name.isidentifier() else "function"

    @property
    def is_pure(self) -> bool:
        """True if the function is declared to have no side effects."""
        how = self.options
        return not self.user.stateful or how.pure or how.table is not None

    @property
    def has_shape_function(self) -> bool:
        """True if a shape function is declared."""
        return callable(self.options.result) and not is_leaf(self.options.result)

    def program(self, *args: Any) -> object:
        """Call the function on tensors, as programs do."""
        if self._program is not None:
            return self._program(*args)
        structure = self.outputs.structure
        tout = tf.nest.map_structure(lambda leaf: getattr(leaf, "dtype", leaf), structure)
        if self.eager:
            return tf.py_function(self.function, args, tout)
        return tf.numpy_function(self.function, args, tout, stateful=self.user.stateful)

    def specs(self, known: Sequence[Spec]) -> list[Spec]:
        """Return the declared specs of the results, flat, for the specs of arguments."""
        assert self._shape_function is not None  # a check needs a declared result
        pairs = zip(self._shape_function(known), self.outputs.dtypes, strict=True)
        return [tf.TensorSpec(None, dtype) if one is None else one for one, dtype in pairs]

    def out_specs(self, sample: Sample) -> list[Spec]:
        """Return the specs of the arrays that the function writes its results into, if any."""
        return self.specs(sample.specs) if self.options.out else []

    def nested(self, tensors: Sequence[Any]) -> list[Any]:
        """Return tensors in the structure in which the user passes them to the program."""
        return list(
            tf.nest.pack_sequence_as(self._structure, list(tensors), expand_composites=True)
        )

    def values(self, sample: Sample) -> list[Any]:
        """Return new values of arguments, flat, as programs pass them."""
        if self.eager:
            return [tf.identity(tensor) for tensor in sample.tensors]
        return [tensor.numpy() for tensor in sample.tensors]

    def call(self, sample: Sample) -> Called:
        """Call the function once, as programs do."""
        try:
            specs = self.out_specs(sample)
        except Exception as error:  # from the shape function
            return Called(error, sample=sample)
        began = time.monotonic()
        called = self.call_on(self.values(sample), specs)
        return dataclasses.replace(called, sample=sample, seconds=time.monotonic() - began)

    def call_on(self, values: Sequence[Any], specs: Sequence[Spec], poison: int = POISON) -> Called:
        """Call the function once on arrays (or EagerTensors) that are given flat."""
        # `specs` are those of the arrays of `out`, which the byte `poison` fills before the call.
        self.calls += 1
        given = tuple(values)
        for index, spec in enumerate(specs):
            if not (isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()):
                return Called(UnsizedError(_UNSIZED.format(index=index)), arguments=given)
        try:
            with eager_execution.eager_mode():
                if self.options.on_device:
                    return self._lending(given)
                if self.options.shares_memory:
                    return self._borrowing(given, specs, poison)
                return Called(returned=self.function(*self.inputs.pack(given)), arguments=given)
        except Exception as error:
            return Called(error, arguments=given)

    def _lending(self, values: tuple[Any, ...]) -> Called:
        """Call a function that takes arrays where they lie: one with `memory="device"`."""
        loans = prepared().Loans([np.asarray(value) for value in values])
        try:
            returned = self.function(*self.inputs.pack(loans.shown))
            returned = _device_arrays.take_on_host(returned, self.description)
            returned = tf.nest.map_structure(copy.copy, returned)
            return Called(returned=returned, kept=bool(loans.any_is_used()), arguments=values)
        finally:
            loans.end()

    def _borrowing(self, values: tuple[Any, ...], specs: Sequence[Spec], poison: int) -> Called:
        """Call a function that borrows its arguments, its `out` arrays, or both."""
        outs = tuple(_poisoned(spec, poison) for spec in specs)
        given: dict[str, Any] = {}
        if self.options.out:
            given["out"] = outs[0] if len(outs) == 1 else self.outputs.pack(outs)
        lent: list[np.ndarray] = [*outs]
        for value in values if self.options.borrow else ():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
                lent.append(value)
        before = _references(lent)
        returned = self.function(*self.inputs.pack(values), **given)
        wrong_out = bool(outs) and not _is_out(returned, given["out"])
        if outs:
            returned = None
        else:
            copied = functools.partial(array_specs.detached, views=lent)
            returned = tf.nest.map_structure(copied, returned)
        # Garbage collection takes time, and only the first call's `kept` is read.
        if _references(lent) > before and self.calls == 1:
            gc.collect()
        return Called(None, returned, outs, _references(lent) > before, wrong_out, values)

    def results(self, called: Called) -> list[Any]:
        """Return the results of a call, flat; raise an error for another structure."""
        if self.options.call_log is not None:
            return []
        if called.outs:
            return list(called.outs)
        function, composite = self.function, self.inputs.composite
        return list(self.outputs.flatten(called.returned, function, composite))

    def arrays(self, called: Called) -> list[np.ndarray]:
        """Return the results of a call as new arrays; they must be as declared."""
        pairs = zip(self.results(called), self.outputs.dtypes, strict=True)
        return [np.array(self.as_array(value, dtype)) for value, dtype in pairs]

    def as_array(self, value: object, dtype: tf.DType) -> np.ndarray:
        """Return one result as the array that programs make of it."""
        if self.eager:
            with eager_execution.eager_mode():
                return np.asarray(tf.convert_to_tensor(value, dtype).numpy())
        is_empty = isinstance(value, list) and not value
        wanted = np.dtype(dtype.as_numpy_dtype) if is_empty else None
        return np.asarray(token_registry.to_array(value, wanted))


def _poisoned(spec: Spec, poison: int) -> np.ndarray:
    """Return a new array filled with one byte, or with None if it is for strings."""
    array = np.empty(spec.shape.as_list(), spec.dtype.as_numpy_dtype)
    if array.dtype != object:
        array.reshape(-1).view(np.uint8)[...] = poison
    return array


def _is_out(returned: object, out: object) -> bool:
    if returned is None or returned is out:
        return True
    ones, others = tf.nest.flatten(returned), tf.nest.flatten(out)
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


def _references(arrays: Sequence[np.ndarray]) -> int:
    return sum(map(sys.getrefcount, arrays))


def _spec_of(value: object) -> tf.TensorSpec:
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    return tf.TensorSpec(None, tf.string if is_text else tf.as_dtype(array.dtype))


def _is_composite(leaf: object) -> bool:
    return isinstance(leaf, features.CompositeTensor)

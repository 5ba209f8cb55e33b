"""The subject of a check: a function, its declaration, and one way to call it."""

from __future__ import annotations

import dataclasses
import functools
import gc
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import result_shapes, structures
from hostcall._callbacks.structures import Outputs, Spec, is_leaf
from hostcall._check.arguments import Arguments, Sample
from hostcall._functions import callback as functions_callback
from hostcall._functions import source_location
from hostcall._functions.callback import Callback
from hostcall._functions.declaration import Declaration, check_callback, check_function
from hostcall._functions.declarations import declaration_of
from hostcall._functions.native_code import NativeCode
from hostcall._tf import eager_execution, tensor_structures, token_registry
from hostcall_runtime import _device_arrays, prepared

# Packs flat arguments into those that the user's function takes.
Pack = Callable[[Sequence[Any]], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Called:
    """The outcome of one call.

    Attributes:
      error: the exception of the function, or None.
      returned: the value that it has returned.
      outs: the arrays for its results, with `out=True`.
      kept: whether a reference is left to an array that the function was lent.
      wrong_out: whether the function has returned a value that is not `out`.
      arguments: the arrays or tensors that it was called with, flat.
    """

    error: Exception | None = None
    returned: Any = None
    outs: tuple[np.ndarray, ...] = ()
    kept: bool = False
    wrong_out: bool = False
    arguments: tuple[Any, ...] = ()

    @property
    def raised(self) -> str:
        """The exception in one line."""
        lines = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {lines[0][:300] if lines else ''}"


class Lent:
    """Arrays that a function has for the time of one call.

    Attributes:
      outs: the arrays for its results.
      out: the same arrays, in the structure that the function gets as `out`.
    """

    def __init__(self, views: Sequence[np.ndarray], outs: tuple[np.ndarray, ...], out: Any) -> None:
        for view in views:
            view.flags.writeable = False
        self.outs = outs
        self.out = out
        self._all: list[np.ndarray] = [*views, *outs]

    def to(
        self, function: Callable[..., Any], pack: Pack, values: Sequence[Any], collects: bool
    ) -> Called:
        """Call a function.

        Args:
          function: the function to call.
          pack: makes its arguments from flat ones.
          values: the arguments, flat.
          collects: whether references from garbage cycles are not counted as `kept`.
        """
        before = self._references()
        returned = function(*pack(values))
        wrong_out = False
        if self.outs:
            wrong_out = not (returned is None or _are_same(returned, self.out))
            returned = None
        else:
            returned = tf.nest.map_structure(self._detached, returned)
        kept = self._references() > before
        if kept and collects:
            gc.collect()
            kept = self._references() > before
        return Called(None, returned, self.outs, kept, wrong_out, tuple(values))

    def _references(self) -> int:
        return sum(sys.getrefcount(array) for array in self._all)

    def _detached(self, value: Any) -> Any:
        lent = isinstance(value, np.ndarray) and any(
            np.may_share_memory(value, array) for array in self._all
        )
        return value.copy() if lent else value


def on_loan(
    function: Callable[..., Any], pack: Pack, values: Sequence[Any], description: str
) -> Called:
    """Call a function that takes arrays where they lie: one with `memory="device"`."""
    loans = prepared().Loans([np.asarray(value) for value in values])
    try:
        returned = _device_arrays.of_host(function(*pack(loans.shown())), description)
        returned = tf.nest.map_structure(_copied, returned)
        return Called(None, returned, (), bool(loans.any_is_used()), False, tuple(values))
    finally:
        loans.end()


def poisoned(spec: Spec, poison: int) -> np.ndarray:
    """Return a new array filled with one byte, or with None if it is for strings."""
    array = np.empty(spec.shape.as_list(), spec.dtype.as_numpy_dtype)
    if array.dtype == object:
        return array
    if array.dtype == bool:
        array[...] = bool(poison & 1)
    else:
        array.reshape(-1).view(np.uint8)[...] = poison
    return array


def _are_same(returned: object, out: object) -> bool:
    if returned is out:
        return True
    ones, others = tf.nest.flatten(returned), tf.nest.flatten(out)
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


_NOTHING = (
    "hostcall.check: nothing is declared of the results of {function}. Write "
    "hostcall.check({name}, ..., result=tf.TensorSpec([3], tf.float32)), for one, or declare it: "
    "hostcall.declare({name}, result=...)."
)
_NO_KEYWORDS = (
    "hostcall.check: kwargs= is for a hostcall.callback, and script ops pass no arguments by "
    "keyword. Write hostcall.check(hostcall.callback({name}, result=...), ..., kwargs=...)."
)
_TWICE = (
    "hostcall.check: {option}= is for plain functions, and {function!r} says it itself. Take "
    "{option}= away."
)
_PROGRAM = (
    "hostcall.check tries a function that programs call, and {function!r} is a program. "
    "hostcall.explain shows what becomes of it."
)


@dataclasses.dataclass(frozen=True)
class Declared:
    """A function and its declaration.

    Attributes:
      function: the function, which takes all arguments by position.
      declaration: its declaration.
      eager: whether the function takes EagerTensors.
      stateful: whether calls may have side effects.
      grad: the gradient that the user has given it, or None.
      given_name: the name that the user has given it, or None.
      is_callback: whether the user has made a `hostcall.callback` of it.
      dtypes: the user's `result`, with dtypes for a declaration of shapes alone, or None.
      program: makes a callable from the structure of the results; it calls the function on tensors.
    """

    function: Callable[..., Any]
    declaration: Declaration
    eager: bool
    stateful: bool
    grad: Callable[..., Any] | None
    given_name: str | None
    is_callback: bool
    dtypes: Any
    program: Callable[[Outputs], Callable[..., Any]]


def of_callback(
    callback: Callback, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Declared, tuple[Any, ...]]:
    """Return the declaration of a callback, and its arguments by position."""
    inputs, call = callback._sorted(args, dict(kwargs))
    program = callback
    if kwargs:
        program = Callback(
            call.function, call.declaration, callback.kind, callback.stateful, None, call.grad
        )
    declared = Declared(
        call.function,
        call.declaration,
        callback.kind == "eager",
        callback.stateful,
        call.grad,
        callback.name,
        True,
        None,
        lambda _: program,
    )
    return declared, inputs


def of_function(function: Any, result: object, kind: str, stateful: bool | None) -> Declared:
    """Return the declaration of a plain function, with the options of `hostcall.check`.

    Args:
      function: the function.
      result: as `hostcall.callback` takes it, or dtypes; None if the declaration is enough.
      kind: "numpy" or "eager".
      stateful: whether calls may have side effects; None to take it from kind and declaration.

    Raises:
      TypeError: when it is no function, or its results are not declared.
    """
    if hasattr(function, "get_concrete_function"):
        raise TypeError(_PROGRAM.format(function=function))
    check_function(function, "hostcall.check")
    declaration = declaration_of(function) or Declaration()
    eager = kind == "eager"
    if stateful is None:
        stateful = eager or not (declaration.pure or declaration.table is not None)
    check_callback(kind, None, None, stateful, None)
    result = _with_specs(result)
    if declaration.result is not None:
        call = functools.partial(_by_script_op, function, eager, stateful)
        return Declared(function, declaration, eager, stateful, None, None, False, result, call)
    if result is None:
        name = getattr(function, "__name__", "f")
        where = source_location.of_function(function)
        raise TypeError(_NOTHING.format(function=where, name=name))
    declaration = dataclasses.replace(declaration, result=result)
    made = Callback(function, declaration, kind, stateful, None, None)
    return Declared(function, declaration, eager, stateful, None, None, False, None, lambda _: made)


def of(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: object,
    kind: str | None,
    stateful: bool | None,
) -> tuple[Declared, tuple[Any, ...]]:
    """Return the declaration of a function or callback, and its arguments by position.

    Raises:
      TypeError: when it is neither, or options are missing or do not fit it.
    """
    if isinstance(function, Callback):
        given = {"result": result, "kind": kind, "stateful": stateful}
        for option, value in given.items():
            if value is not None:
                raise TypeError(_TWICE.format(option=option, function=function))
        return of_callback(function, args, kwargs)
    if kwargs:
        raise TypeError(_NO_KEYWORDS.format(name=getattr(function, "__name__", "f")))
    if isinstance(function, NativeCode) and stateful is None:
        stateful = False  # it runs no Python
    return of_function(function, result, kind or "numpy", stateful), args


def _by_script_op(
    function: Callable[..., Any], eager: bool, stateful: bool, outputs: Outputs
) -> Callable[..., Any]:
    tout = tf.nest.map_structure(lambda leaf: getattr(leaf, "dtype", leaf), outputs.structure)

    def call(*args: Any) -> Any:
        if eager:
            return tf.py_function(function, args, tout)
        return tf.numpy_function(function, args, tout, stateful=stateful)

    return call


def _with_specs(result: object) -> Any:
    """Return a declared result with specs in the place of dtypes."""
    if isinstance(result, dict):
        return {key: _with_specs(value) for key, value in result.items()}
    if isinstance(result, list | tuple) and not hasattr(result, "_fields"):
        return type(result)(map(_with_specs, result))
    is_dtype = isinstance(result, tf.DType | np.dtype) or (
        isinstance(result, type) and issubclass(result, np.generic)
    )
    if is_dtype and not is_leaf(result):
        return tf.TensorSpec(None, tf.as_dtype(result))
    return result


_UNSIZED = (
    "out=True makes the arrays for the results before the call, and the sizes of result {index} "
    "are not declared"
)


class UnsizedError(ValueError):
    """Error: the sizes of results that a function with `out=True` writes are not known."""


class Subject:
    """A function with its declaration and the arguments of its trial calls.

    Attributes:
      declared: the function and its declaration.
      arguments: the arguments that the user has given.
      inputs, outputs: the structures of arguments and results.
      program: a callable that calls the function on tensors, as programs do.
      calls: the number of calls so far.
    """

    def __init__(self, declared: Declared, args: Sequence[Any]) -> None:
        self.declared = declared
        self.declaration = declared.declaration
        self.function = declared.function
        self.eager = declared.eager
        self.calls = 0
        self._structure = tensor_structures.convert_variables_to_tensors(list(args))
        leaves = tf.nest.flatten(self._structure)
        self.arguments = Arguments(_components(leaves), any(map(_is_composite, leaves)))
        self.inputs = structures.read_inputs(
            self.nested(self.arguments.base.tensors), self.eager, pack_lists=False
        )
        result = self.declaration.result if declared.dtypes is None else declared.dtypes
        self.outputs = structures.Outputs(self._results(result), strict=True)
        self._shape_function = result_shapes.make_shape_function(
            self.declaration, self.function, self.inputs, self.outputs
        )
        self.program = declared.program(self.outputs)

    def _results(self, result: Any) -> Any:
        """Return the structure of the results; that of one call if the shape function fails."""
        if not self.has_shape_function or self.declared.dtypes is not None:
            return structures.specs_for(result, self.inputs)
        try:
            result(*self.inputs.pack_specs(self.arguments.base.specs))
        except Exception:  # the check of shapes reports it
            called = self.call(self.arguments.base)
            return tf.nest.map_structure(_spec_of, called.returned)
        return structures.specs_for(result, self.inputs)

    @property
    def description(self) -> str:
        """The function and where it is defined."""
        return source_location.of_function(self.function)

    @property
    def user_function(self) -> Any:
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
        how = self.declaration
        return not self.declared.stateful or how.pure or how.table is not None

    @property
    def has_shape_function(self) -> bool:
        """True if a shape function is declared."""
        return callable(self.declaration.result) and not is_leaf(self.declaration.result)

    def specs(self, known: Sequence[Spec]) -> list[Spec]:
        """Return the declared specs of the results, flat, for the specs of arguments."""
        said = self._shape_function(known)
        pairs = zip(said, self.outputs.dtypes, strict=True)
        return [tf.TensorSpec(None, dtype) if one is None else one for one, dtype in pairs]

    def nested(self, tensors: Sequence[Any]) -> list[Any]:
        """Return tensors in the structure in which the user passes them to the program."""
        remaining = iter(tensors)

        def leaf(given: Any) -> Any:
            if not _is_composite(given):
                return next(remaining)
            parts = tf.nest.flatten(given, expand_composites=True)
            taken = [next(remaining) for _ in parts]
            return tf.nest.pack_sequence_as(given, taken, expand_composites=True)

        nested: list[Any] = tf.nest.map_structure(leaf, self._structure)
        return nested

    def values(self, sample: Sample) -> list[Any]:
        """Return new values of arguments, flat, as programs pass them."""
        if self.eager:
            return [tf.identity(tensor) for tensor in sample.tensors]
        return [tensor.numpy() for tensor in sample.tensors]

    def call(self, sample: Sample, poison: int = 0x55) -> Called:
        """Call the function once, as programs do.

        Args:
          sample: its arguments.
          poison: the byte that fills the arrays of `out` before the call.
        """
        specs = self.specs(sample.specs) if self.declaration.out else []
        return self.call_on(self.values(sample), specs, poison)

    def call_on(
        self, values: Sequence[Any], specs: Sequence[Spec] = (), poison: int = 0x55
    ) -> Called:
        """Call the function once on arrays (or EagerTensors) that are given flat.

        Args:
          values: the arguments.
          specs: the specs of the results, if the function writes them into `out`.
          poison: the byte that fills the arrays of `out` before the call.
        """
        self.calls += 1
        unsized = [i for i, spec in enumerate(specs) if not _has_sizes(spec)]
        if unsized:
            return Called(UnsizedError(_UNSIZED.format(index=unsized[0])), arguments=tuple(values))
        try:
            with eager_execution.eager_mode():
                if self.declaration.on_device:
                    return on_loan(self.function, self.inputs.pack, values, self.description)
                if self.declaration.shares_memory:
                    return self._borrowing(values, specs, poison)
                returned = self.function(*self.inputs.pack(values))
        except Exception as error:
            return Called(error, arguments=tuple(values))
        return Called(returned=returned, arguments=tuple(values))

    def results(self, called: Called) -> list[Any]:
        """Return the results of a call, flat and unconverted.

        Raises:
          ValueError, TypeError: when the structure is not the declared one.
        """
        if self.declaration.line is not None:
            return []
        if called.outs:
            return list(called.outs)
        function, composite = self.function, self.inputs.composite
        results: list[Any] = self.outputs.flatten(called.returned, function, composite)
        return results

    def arrays(self, called: Called) -> list[np.ndarray]:
        """Return the results of a call as new arrays; they must be as declared."""
        pairs = zip(self.results(called), self.outputs.dtypes, strict=True)
        return [np.array(self.as_array(value, dtype)) for value, dtype in pairs]

    def as_array(self, value: Any, dtype: tf.DType) -> np.ndarray:
        """Return one result as the array that programs make of it."""
        if self.eager:
            with eager_execution.eager_mode():
                return np.asarray(tf.convert_to_tensor(value, dtype).numpy())
        is_empty = isinstance(value, list) and not value
        wanted = np.dtype(dtype.as_numpy_dtype) if is_empty else None
        return np.asarray(token_registry.to_array(value, wanted))

    def _borrowing(self, values: Sequence[Any], specs: Sequence[Spec], poison: int) -> Called:
        how = self.declaration
        outs = tuple(poisoned(spec, poison) for spec in specs)
        given: Mapping[str, Any] = {}
        if how.out:
            given = {"out": self.outputs.pack(outs) if len(outs) != 1 else outs[0]}
        views = [v for v in values if isinstance(v, np.ndarray)] if how.borrow else []
        call = functools.partial(self.function, **given)
        lent = Lent(views, outs, given.get("out"))
        # Garbage collection takes time, and only the first call's `kept` is read.
        return lent.to(call, self.inputs.pack, values, collects=self.calls == 1)


def _spec_of(value: Any) -> tf.TensorSpec:
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    return tf.TensorSpec(None, tf.string if is_text else tf.as_dtype(array.dtype))


def _has_sizes(spec: Spec) -> bool:
    return isinstance(spec, tf.TensorSpec) and bool(spec.shape.is_fully_defined())


def _is_composite(leaf: object) -> bool:
    return isinstance(leaf, tensor_structures.CompositeTensor)


def _components(leaves: Sequence[Any]) -> list[Any]:
    return [
        part
        for leaf in leaves
        for part in (
            tf.nest.flatten(leaf, expand_composites=True) if _is_composite(leaf) else [leaf]
        )
    ]

"""`hostcall.callback`: functions that take tensors, by position or keyword; and `hostcall.map`."""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from hostcall._functions import declarations, frameworks, source_location, specs
from hostcall._functions.declarations import add_native_results, bind_to_method, declaration_of
from hostcall._functions.native_code import Native
from hostcall._functions.options import (
    CallbackOptions,
    F,
    Kind,
    Options,
    VisibleOptions,
    check_callback,
    check_function,
    check_side_effects,
    check_takes_tensors,
    options_of,
    takes,
    unconverted,
)
from hostcall._functions.user_function import UserFunction
from hostcall_runtime import _executors, _mapped_calls, register
from hostcall_runtime._keyword_call import KeywordCall
from hostcall_runtime._mapped_calls import MappedFunction

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_TF_FUNCTION = "tensorflow.python.eager.polymorphic_function."
_OF_GRADIENTS = 3  # the positional parameters of a gradient function: inputs, results, upstream


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of one call."""

    # The inputs of the op: positional arguments first, then tensors passed by keyword.
    inputs: tuple[Any, ...]
    names: tuple[str, ...] = ()  # the keywords by which the function gets the last inputs
    # The keyword arguments that hold no tensor.
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The function's defaults for parameters that are not passed.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The names of the inputs before these that the user passed by keyword.
    moved: tuple[str, ...] = ()

    def of_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callable that takes the inputs by position and calls the function with all."""
        if not (self.names or self.fixed):
            return function
        return KeywordCall(function, self.names, self.fixed)

    def of_shape_function(self, result: Any) -> object:
        """Return `result`; pass its shape function only the arguments that it can take."""
        if not specs.is_shape_function(result):
            return result
        count = len(self.inputs) - len(self.names)
        left_out = int(min(len(self.moved), max(0, count - _most_by_position(result))))
        wanted = _takes_by_name(result, count - left_out)
        names = [*self.moved[len(self.moved) - left_out :], *self.names]
        return self._called(result, [name if wanted(name) else None for name in names], wanted)

    def of_gradient(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        """Return `grad` with the fixed arguments that it can take; `inputs` has all tensors."""
        return self._called(grad, [], _takes_by_name(grad, _OF_GRADIENTS))

    def _called(
        self, function: Callable[..., Any], names: list[str | None], wanted: Callable[[str], bool]
    ) -> Callable[..., Any]:
        known = {**self.defaults, **self.fixed}
        fixed = {name: value for name, value in known.items() if wanted(name)}
        return KeywordCall(function, names, fixed) if names or fixed else function


def sort(
    function: Callable[..., Any],
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    by_name: Mapping[str, Any],
) -> Arguments:
    """Sort the arguments of a call into op inputs and fixed ones, or raise a TypeError."""
    parameters = {} if signature is None else signature.parameters
    passed = {*_passed(parameters, len(args)), *by_name}
    if signature is not None and by_name:
        try:
            passed = {*signature.bind(*args, **by_name).arguments}
        except TypeError as error:
            raise TypeError(
                f"hostcall.callback: {error}. The function is "
                f"{source_location.of_function(function)}, and takes {signature}."
            ) from None
    inputs, left = list(args), dict(by_name)
    moved: list[str] = []
    for position, (name, parameter) in enumerate(parameters.items()):
        # Passing a tensor by keyword or by position makes the same op if both are possible.
        is_next = position == len(inputs) and parameter.kind in _BY_POSITION
        if is_next and frameworks.holds_arrays(left.get(name)):
            inputs.append(left.pop(name))
            moved.append(name)
    left = {name: left[name] for name in parameters if name in left} | left
    tensors = {name: value for name, value in left.items() if frameworks.holds_arrays(value)}
    fixed = {name: value for name, value in left.items() if name not in tensors}
    defaults = _defaults(parameters, passed)
    return Arguments((*inputs, *tensors.values()), tuple(tensors), fixed, defaults, tuple(moved))


def without_defaults(
    args: tuple[Any, ...], by_name: dict[str, Any], signature: inspect.Signature | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Remove defaults that `tf.function` passes: NumPy's functions refuse some combinations."""
    if signature is None or not (by_name or (args and args[-1] is None)):
        return args, by_name
    parameters = signature.parameters
    by_position = [p.default for p in parameters.values() if p.kind in _BY_POSITION]
    while 0 < len(args) <= len(by_position) and args[-1] is by_position[len(args) - 1] is None:
        args = args[:-1]
    return args, {
        name: value
        for name, value in by_name.items()
        if name not in parameters or value is not parameters[name].default
    }


def by_keyword(
    args: tuple[Any, ...], by_name: dict[str, Any], signature: inspect.Signature
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Pass by keyword what `tf.function` passes by position, so that Python's values stay.

    It passes by position all that it can, also defaults and what the user has passed by keyword. A
    positional argument becomes a tensor, and one by keyword does if it holds one. So the arguments
    change from the first one on that has a default and holds no tensor.
    """
    parameters = list(signature.parameters.values())[: len(args)]
    while parameters and len(parameters) == len(args) and args[-1] is parameters[-1].default:
        args = args[:-1]
        parameters.pop()
    for index, (one, value) in enumerate(zip(parameters, args, strict=False)):
        are_named = all(other.kind is other.POSITIONAL_OR_KEYWORD for other in parameters[index:])
        if are_named and one.default is not one.empty and not frameworks.holds_arrays(value):
            moved = {p.name: v for p, v in zip(parameters[index:], args[index:], strict=True)}
            return args[:index], {**moved, **by_name}
    return args, by_name


def _is_traced_itself() -> bool:
    """Return whether `tf.function` calls the callback, and no function of the user's."""
    frame = sys._getframe(2)  # the caller of the callback
    while (module := frame.f_globals.get("__name__", "")).startswith("tensorflow."):
        if module.startswith(_TF_FUNCTION):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def signature_of(function: Callable[..., Any], without_out: bool) -> inspect.Signature | None:
    """Return a function's signature, perhaps without `out`; None where Python does not know it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C modules have no signature
        return None
    kept = [p for p in signature.parameters.values() if not (without_out and p.name == "out")]
    return signature.replace(parameters=kept)


def saved_arguments(
    function: Callable[..., Any], count: int, names: tuple[str, ...], fixed: Mapping[str, Any]
) -> Arguments:
    """Return the arguments of a call that was saved; its op has `count` inputs."""
    signature = signature_of(function, without_out=True)
    parameters = {} if signature is None else signature.parameters
    passed = {*_passed(parameters, count - len(names)), *names, *fixed}
    return Arguments((None,) * count, names, fixed, _defaults(parameters, passed))


def parts(function: Any) -> tuple[Callable[..., Any], tuple[str, ...], Mapping[str, Any]]:
    """Return the user's function, the keywords of its last inputs, and its fixed arguments."""
    if not isinstance(function, KeywordCall):
        return function, (), {}
    names = tuple(name for name in function.names if name is not None)
    return function.function, names, function.fixed


def literal(value: object) -> str | None:
    """Return a value as a Python literal, or None if the literal does not give it back."""
    text = repr(value)
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        if repr(ast.literal_eval(text)) == text:
            return text
    return None


def _passed(parameters: Mapping[str, inspect.Parameter], count: int) -> list[str]:
    """Return the names of the parameters that `count` positional arguments fill."""
    return [name for name, one in parameters.items() if one.kind in _BY_POSITION][:count]


def _defaults(parameters: Mapping[str, inspect.Parameter], passed: set[str]) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty and name not in passed
    }


def _most_by_position(function: Callable[..., Any]) -> float:
    """Return the largest number of positional arguments that a function takes."""
    signature = signature_of(function, without_out=False)
    kinds = [] if signature is None else [one.kind for one in signature.parameters.values()]
    if signature is None or inspect.Parameter.VAR_POSITIONAL in kinds:
        return math.inf
    return sum(kind in _BY_POSITION for kind in kinds)


def _takes_by_name(function: Callable[..., Any], count: int) -> Callable[[str], bool]:
    """Return a test for names that a function takes by keyword after `count` positional ones."""
    signature = signature_of(function, without_out=False)
    parameters = {} if signature is None else signature.parameters
    passed = _passed(parameters, count)
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return lambda name: name not in passed
    names = {name for name, one in parameters.items() if one.kind in _BY_NAME}
    return lambda name: name in names and name not in passed


# The signature shown for functions of C modules that have none.
_UNKNOWN_SIGNATURE = inspect.signature(lambda *args, **by_name: None)  # noqa: ARG005

# For type checkers and editors: the parameters and the result of the function.
P = ParamSpec("P")
Left = ParamSpec("Left")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Callback(Generic[P, R_co]):
    """A Python function that TensorFlow and JAX programs call, compiled or not.

    `hostcall.callback` makes it. It is called like the function, with tensors (or structures of
    them) as arguments. In a `tf.function` the call becomes an op of the graph; in eager mode it
    runs at once. With JAX's arrays, or values of a JAX program, it is a `hostcall.jax.call`:
    ordered if the callback is stateful, and pure otherwise.

    Attributes:
      name: the name that it is registered under, or else that of the function.
      kind: "numpy" or "eager".
      stateful: whether each call has a side effect.

    Examples:
      >>> halve = hostcall.callback(lambda x: x / 2, result=lambda x: x, name="halve")
      >>> halve.name, halve.kind, halve.stateful
      ('halve', 'numpy', True)
      >>> float(halve(tf.constant(3.0)))
      1.5
    """

    __name__: str  # the function's, if it has one

    def __init__(
        self,
        function: Callable[P, R_co],
        options: Options,
        kind: str,
        stateful: bool,
        name: str | None,
        grad: Callable[..., Any] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        # TensorFlow would trace through to the wrapped function.
        self.__dict__.pop("__wrapped__", None)
        self._read_signature(function, options.out)
        # Keras names a loss or a metric by it.
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.kind = kind
        self._given_name = name
        self.stateful = stateful
        self._function = function
        # Exported programs read this in processes without hostcall's TensorFlow side.
        self.__hostcall_function__ = function
        self._options = options
        self.__hostcall_declaration__ = options
        self._grad = grad
        if name is not None:
            register(self, name)
            declarations.note_callback(name, self)

    # What is passed by position becomes a tensor or an array of the kind that the function takes,
    # so it may be of another type than the function's own parameter. The overloads let it, for as
    # many parameters as have one, and the others and the keywords stay as they are.
    @overload
    def __call__(self, /, *args: P.args, **by_name: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self: Callback[Concatenate[Any, Left], R],
        first: Any,
        /,
        *args: Left.args,
        **by_name: Left.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self: Callback[Concatenate[Any, Any, Left], R],
        first: Any,
        second: Any,
        /,
        *args: Left.args,
        **by_name: Left.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self: Callback[Concatenate[Any, Any, Any, Left], R],
        first: Any,
        second: Any,
        third: Any,
        /,
        *args: Left.args,
        **by_name: Left.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self: Callback[Concatenate[Any, Any, Any, Any, Left], R],
        first: Any,
        second: Any,
        third: Any,
        fourth: Any,
        /,
        *args: Left.args,
        **by_name: Left.kwargs,
    ) -> R: ...
    def __call__(self, /, *args: Any, **by_name: Any) -> Any:
        """Call the function.

        Args:
          *args: for each argument a tensor, or a structure of tensors; or JAX's arrays instead.
          **by_name: keyword arguments. Those that hold a tensor or an array are inputs like the
            positional ones. Others (a number, a string, None, a function) reach the function as
            they are and are part of the program: a call with another value is another call. An
            argument that is left out has the function's default. `tf.function(callback)` passes
            by keyword what holds no tensor, from the first parameter with a default on.

        Returns:
          Tensors in the structure of the declared result, or JAX's arrays.

        Raises:
          TypeError: when the function does not take arguments of these names, the declared result
            has no dtypes, or an "eager" callback is called from JAX.
          ValueError: when a result is declared with a bounded or unknown size, in JAX.
        """
        if len(args) > self._required and self._signature is not None and _is_traced_itself():
            args, by_name = by_keyword(args, by_name, self._signature)
        args, by_name = without_defaults(args, by_name, self._signature)
        inputs, call = self._sorted(args, by_name)
        return frameworks.call_callback(call, inputs, (*args, *by_name.values()))

    def _sorted(
        self, args: tuple[Any, ...], by_name: dict[str, Any]
    ) -> tuple[tuple[Any, ...], UserFunction]:
        """Return the op's inputs, and the function that takes them by position."""
        if not by_name and len(args) in self._calls:
            return args, self._calls[len(args)]
        if by_name and isinstance(self._function, Native):
            raise TypeError(
                f"hostcall.callback of {self._function!r}: native code takes its arguments by "
                f"position, and not {', '.join(by_name)} by keyword."
            )
        arguments = sort(self._function, self._signature, args, by_name)
        function = arguments.of_function(self._function)
        options = self._options
        result = arguments.of_shape_function(options.result)
        if function is not self._function or result is not options.result:
            options = options.of_call(result, getattr(function, "key", None))
        grad = None if self._grad is None else arguments.of_gradient(self._grad)
        call = UserFunction(
            function,
            options,
            takes_tensors=self.kind == "eager",
            stateful=self.stateful,
            owns_arguments=True,
            given_name=self._given_name,
            grad=grad,
        )
        if not by_name:
            self._calls[len(args)] = call
        return arguments.inputs, call

    def _read_signature(self, function: Callable[..., Any], takes_out: bool) -> None:
        """Give the callback its function's signature, without the `out` that hostcall passes."""
        self._signature = signature_of(function, takes_out)
        self.__signature__ = self._signature or _UNKNOWN_SIGNATURE
        parameters = () if self._signature is None else self._signature.parameters.values()
        # The number of positional parameters that have no default.
        self._required = sum(p.kind in _BY_POSITION and p.default is p.empty for p in parameters)
        # A cache for calls without keywords, by the number of arguments.
        self._calls: dict[int, UserFunction] = {}

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Callback[P, R_co]: ...
    @overload
    def __get__(
        self: Callback[Concatenate[Any, Left], R], instance: object, owner: type | None = None
    ) -> Callback[Left, R]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        """Return the callback of a bound method, if the function is decorated in a class."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound._function = types.MethodType(self._function, instance)
        bound.__hostcall_function__ = bound._function
        bound._options = bind_to_method(bound._function, self._options)
        bound._read_signature(bound._function, self._options.out)
        return bound

    def __repr__(self) -> str:
        name = f" {self._given_name}" if self._given_name else ""
        return f"<hostcall.callback{name} of {source_location.of_function(self._function)}>"


# A "numpy" function takes and returns arrays, and calls pass and get what their framework has. With
# `out` the function has a parameter that calls do not pass.
@overload
def callback(
    function: Callable[P, R],
    *,
    result: object,
    kind: Literal["eager"],
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    **options: Unpack[VisibleOptions],
) -> Callback[P, R]: ...
@overload
def callback(
    function: Callable[P, Any],
    *,
    result: object,
    kind: Kind = "numpy",
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    out: Literal[False] = False,
    **options: Unpack[VisibleOptions],
) -> Callback[P, Any]: ...
@overload
def callback(
    function: Callable[..., Any],
    *,
    result: object,
    kind: Kind = "numpy",
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    out: bool,
    **options: Unpack[VisibleOptions],
) -> Callback[..., Any]: ...
@overload
def callback(
    *,
    result: object,
    kind: Literal["eager"],
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    **options: Unpack[VisibleOptions],
) -> Callable[[Callable[P, R]], Callback[P, R]]: ...
@overload
def callback(
    *,
    result: object,
    kind: Kind = "numpy",
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    out: Literal[False] = False,
    **options: Unpack[VisibleOptions],
) -> Callable[[Callable[P, Any]], Callback[P, Any]]: ...
@overload
def callback(
    *,
    result: object,
    kind: Kind = "numpy",
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    out: bool,
    **options: Unpack[VisibleOptions],
) -> Callable[[Callable[..., Any]], Callback[..., Any]]: ...
@specs.wanting_result
@takes("callback", CallbackOptions)
def callback(
    function: Callable[..., Any] | None = None,
    *,
    result: object,
    kind: Kind = "numpy",
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    **options: Unpack[CallbackOptions],
) -> Any:
    """Make a function callable from TensorFlow programs, compiled ones included.

    It can be called in a `tf.function`, with `jit_compile=True` or without, and eagerly.

    Args:
      function: the function; left out when used as a decorator.
      result: the results: a `tf.TensorSpec` or `hostcall.BoundedSpec`, a structure of them (`[]`
        for none), or a function from the inputs' specs to one of these. Each run of the function is
        checked against it.
      kind: "numpy": the function takes arrays (NumPy scalars for rank 0), writable and its own, and
        returns arrays of the declared dtypes. "eager": it takes EagerTensors, runs in eager mode
        and is differentiable, like the function of a `tf.py_function`.
      stateful: True: each call runs, once, in program order. False: the function is pure, so XLA
        may drop, share or move calls. An "eager" callback is always stateful.
      name: the qualified name to register the callback under, unique in the process.
      grad: the gradient, `grad(inputs, results, upstream)`: TensorFlow code, or a `Callback` of its
        own. `inputs` is the tuple of the arguments, `results` the call's results, `upstream` their
        gradients, in the same structure. It returns one gradient for each argument, of the
        argument's shape and dtype (for a single argument, not in a tuple); None for an argument
        without a gradient. Another shape or dtype raises a ValueError when the gradient is
        computed. A "numpy" callback with `grad` is differentiable.
      **options: `pure`, `timeout`, `borrow`, `out`, `memo`, `executor`, `wait`, `queue`,
        `when_full`, `vmap_method`, `retries`, `memory` and `concurrent`;
        `help(hostcall.callback)` describes each.

    Returns:
      A `Callback`, or a decorator that makes one.

    Raises:
      TypeError: when `function` or `grad` is not callable, `function` is `async`, `name` is no
        string, `executor` is neither an executor nor a function that makes one, or `wait` or
        `concurrent` is not a bool.
      ValueError: for a `result` that is a string, an unknown `kind`, an eager callback that is
        stateless, borrows arrays, has a `memo` or has an executor of processes; for a stateful
        callback with `memo`, `retries` or `concurrent`; for a `name` that is taken, a `timeout` or
        `memo` that is not positive, `memo` with `out`, and an `executor` with `borrow` or `out`;
        for an unknown `vmap_method`, and for values of `wait`, `queue`, `when_full` and `memory`
        that `hostcall.declare` refuses.

    Examples:
      >>> @hostcall.callback(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
      ... def cumulate(x):
      ...     return np.cumsum(x)
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * cumulate(x)
      >>> program(tf.constant([1.0, 2.0, 3.0])).numpy()
      array([ 2.,  6., 12.], dtype=float32)
    """
    check_callback(kind, name, grad, stateful, result)
    given = options_of("callback", CallbackOptions, dict(options), result=result)
    pure = not stateful or given.pure or given.table is not None
    check_side_effects(given, "hostcall.callback", "stateful=False", ordered=not pure, pure=pure)
    if kind == "eager":
        check_takes_tensors(given, "hostcall.callback with kind='eager'")
    if stateful and given.table is not None:
        raise ValueError(
            f"hostcall.callback: memo={given.memo!r} says that the function does nothing but "
            "return its results, and stateful=True, the default, that each call has to run. Write "
            f"hostcall.callback(..., stateful=False, memo={given.memo!r})."
        )

    def decorate(decorated: Callable[..., Any]) -> Callback[..., Any]:
        check_function(decorated, "hostcall.callback")
        declared = add_native_results(decorated, given.renewed())
        return Callback(decorated, declared, kind, stateful, name, grad)

    return unconverted(decorate) if function is None else decorate(function)


@unconverted
def mapped(fn: F, *, executor: object = None, in_axes: Any = 0, chunks: int | None = None) -> F:
    """Divide the calls of a function among the workers of an executor.

    The leading axis of the arguments is divided into chunks. The function is called once for each
    chunk, at the same time if there are enough workers, and the results are concatenated along
    their first axis. So the function takes a part of a batch, of any size. It must return the same
    for each element as it would for the whole batch.

    Args:
      fn: a function of arrays, or a `hostcall.Callback` of kind "numpy". A gradient that is a
        `Callback` is divided, too; TensorFlow or JAX code computes it for the whole batch. Each
        call gets arrays of its own. The calls of a stateful function run once each, in any order.
      executor: the executor of the calls, as in `hostcall.declare`. It may be left out if one is
        declared for `fn`.
      in_axes: the axis along which the arguments are divided, as in `jax.vmap`: a number for all,
        or a tuple with an entry for each argument: a number, None for an argument that each call
        gets whole, or a structure of these like that of the argument. Arrays that are passed by
        keyword are divided along their first axis.
      chunks: the number of chunks of a batch; None for as many as the executor has workers. A batch
        with fewer elements has fewer chunks, and an empty one has one. Chunk sizes differ by one at
        most.

    Returns:
      A function that is called with whole batches: NumPy arrays, or structures of them. It may be
      passed to `tf.numpy_function`, `hostcall.declare`, `hostcall.callback` and `hostcall.jax.call`
      like any other. For a `Callback`, another `Callback`. A note on an exception names the chunk
      that raised it; by then the other chunks have ended, or they never begin.

    Raises:
      TypeError: when `fn` is not callable, there is no executor, or `in_axes` holds something else.
      ValueError: when `chunks` is not positive, `in_axes` divides nothing, or `fn` is native
        code, or a `Callback` that takes tensors or borrows arrays. Also when the arguments of a
        call lack the axis or differ in size along it, or the results have no first axis.
      hostcall.ExecutorError: when the executor does not make a call.

    Examples:
      >>> pool = concurrent.futures.ThreadPoolExecutor(2)
      >>> cumulate = hostcall.map(lambda x: np.cumsum(x, axis=1), executor=pool)
      >>> cumulate(np.arange(6.0).reshape(3, 2))
      array([[0., 1.],
             [2., 5.],
             [4., 9.]])
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(cumulate, [x], tf.TensorSpec([3, 2], tf.float32))
      >>> program(tf.ones([3, 2])).numpy()
      array([[1., 2.],
             [1., 2.],
             [1., 2.]], dtype=float32)
    """
    check_function(fn, "hostcall.map")
    _mapped_calls.check_axes(in_axes)
    is_number = isinstance(chunks, int) and not isinstance(chunks, bool)
    if chunks is not None and (not is_number or chunks < 1):
        raise ValueError(
            f"hostcall.map: chunks={chunks!r} is not a positive number. Write chunks=8."
        )
    if isinstance(fn, Callback):
        return cast(F, _mapped_callback(fn, executor, in_axes, chunks))
    if isinstance(fn, Native):
        raise ValueError(f"hostcall.map of {fn!r}: a program calls native code itself.")
    options = declaration_of(fn)
    if executor is None and options is not None:
        executor = options.executor
    return cast(F, _mapped_function(fn, executor, in_axes, chunks))


def _mapped_function(
    fn: Callable[..., Any], executor: object, in_axes: Any, chunks: int | None, out_axes: Any = 0
) -> MappedFunction:
    provider = _executors.provider_of(executor)
    description = f"hostcall.map of {source_location.of_function(fn)}"
    if provider is None:
        raise TypeError(
            f"{description}: no executor is given or declared. Write, for example, "
            "executor=concurrent.futures.ThreadPoolExecutor(4)."
        )
    return MappedFunction(fn, provider, in_axes, chunks, description, out_axes)


def _mapped_callback(
    callback: Callback[..., Any],
    executor: object,
    in_axes: Any,
    chunks: int | None,
    out_axes: Any = 0,
) -> Callback[..., Any]:
    options = callback._options
    _check_mappable(callback)
    executor = options.executor if executor is None else executor
    function = _mapped_function(callback._function, executor, in_axes, chunks, out_axes)
    grad = callback._grad
    if isinstance(grad, Callback):
        # It takes inputs, results and upstream gradients. The gradients of an input that all
        # chunks get whole are summed.
        axes = (in_axes, out_axes, out_axes)
        grad = _mapped_callback(grad, executor, axes, chunks, out_axes=in_axes)
    options = dataclasses.replace(options, executor=None)
    return Callback(function, options, callback.kind, callback.stateful, None, grad)


def _check_mappable(callback: Callback[..., Any]) -> None:
    if callback.kind != "numpy":
        raise ValueError(
            f"hostcall.map of {callback!r}: its function takes tensors, which cannot be divided "
            'here. Make it of kind="numpy".'
        )
    if callback._options.shares_memory:
        on_device = callback._options.on_device
        lending = "memory='device' lends" if on_device else "borrow=True and out=True lend"
        raise ValueError(
            f"hostcall.map of {callback!r}: {lending} the function the program's own memory, which "
            f"its workers do not have. Remove {'it' if on_device else 'them'}."
        )

"""The arguments of a `hostcall.callback`, sorted into those of an op and those that are fixed."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from hostcall._functions import frameworks, source_location, specs
from hostcall_runtime._keyword_call import KeywordCall

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# What a gradient takes before the arguments that it asks for by name: inputs, results, upstream.
_OF_GRADIENTS = 3


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of one call.

    Attributes:
      inputs: what becomes inputs of the op: what is passed by position, then the rest.
      names: by which the last of them are passed on.
      moved: the names of those before them that are passed by position, and were not by the user.
      fixed: what is passed by keyword and holds no tensor.
      defaults: those of the function for parameters that are not passed.
    """

    inputs: tuple[Any, ...]
    names: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    moved: tuple[str, ...] = ()

    def of_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is called by position, and calls the function with these arguments."""
        if not (self.names or self.fixed):
            return function
        return KeywordCall(function, self.names, self.fixed)

    def of_shape_function(self, result: Any) -> Any:
        """The same for a declared result: a shape function takes what it has parameters for."""
        if not specs.is_shape_function(result):
            return result
        count = len(self.inputs) - len(self.names)
        left_out = int(min(len(self.moved), max(0, count - _most_by_position(result))))
        wanted = _takes_by_name(result, count - left_out)
        names = [*self.moved[len(self.moved) - left_out :], *self.names]
        return self._called(result, [name if wanted(name) else None for name in names], wanted)

    def of_gradient(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a gradient; tensors that are passed by keyword are among its `inputs`."""
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
    """The arguments of a call.

    Args:
      function: what is called.
      signature: what `signature_of` says of it.
      args: what is passed by position.
      by_name: what is passed by keyword.

    Raises:
      TypeError: when the function does not take them.
    """
    if signature is None:
        return _sorted(args, by_name, {})
    parameters = signature.parameters
    if not by_name:
        return Arguments(args, defaults=_defaults(parameters, {*_passed(parameters, len(args))}))
    try:
        bound = signature.bind(*args, **by_name)
    except TypeError as error:
        raise TypeError(
            f"hostcall.callback: {error}. The function is {source_location.of_function(function)}, "
            f"and takes {signature}."
        ) from None
    inputs = list(args)
    moved: list[str] = []
    left = dict(by_name)
    for position, (name, parameter) in enumerate(parameters.items()):
        # A tensor that could have been passed by position is the same as one that was.
        is_next = position == len(inputs) and parameter.kind in _BY_POSITION
        if is_next and frameworks.holds_arrays(left.get(name)):
            inputs.append(left.pop(name))
            moved.append(name)
    in_order = {name: left[name] for name in parameters if name in left} | left
    found = _sorted(tuple(inputs), in_order, _defaults(parameters, {*bound.arguments}))
    return dataclasses.replace(found, moved=tuple(moved))


def without_defaults(
    args: tuple[Any, ...], by_name: dict[str, Any], signature: inspect.Signature | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call without those that `tf.function` adds, which passes all defaults.

    None at the end of those by position is no tensor, and NumPy's functions refuse some defaults
    beside each other.
    """
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


def signature_of(function: Callable[..., Any], without_out: bool) -> inspect.Signature | None:
    """How a function is called; None where Python does not know it.

    Args:
      function: the function.
      without_out: whether `out` is left out, which hostcall passes.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions of C modules
        return None
    kept = [p for p in signature.parameters.values() if not (without_out and p.name == "out")]
    return signature.replace(parameters=kept)


def of_saved(
    function: Callable[..., Any], count: int, names: tuple[str, ...], fixed: Mapping[str, Any]
) -> Arguments:
    """The arguments of a call that was saved.

    Args:
      function: what is called.
      count: how many arguments the call has.
      names: by which the last of them are passed on.
      fixed: what is passed by keyword and holds no tensor.
    """
    signature = signature_of(function, without_out=True)
    parameters = {} if signature is None else signature.parameters
    passed = {*_passed(parameters, count - len(names)), *names, *fixed}
    return Arguments((None,) * count, names, fixed, _defaults(parameters, passed))


def parts(function: Any) -> tuple[Any, tuple[str, ...], Mapping[str, Any]]:
    """The user's function, the keywords of its last arguments, and what else is passed to it."""
    if not isinstance(function, KeywordCall):
        return function, (), {}
    names = tuple(name for name in function.names if name is not None)
    return function.function, names, function.fixed


def literal(value: Any) -> str | None:
    """A value as Python writes it, None for one that cannot be read again."""
    text = repr(value)
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        if repr(ast.literal_eval(text)) == text:
            return text
    return None


def _sorted(
    args: tuple[Any, ...], by_name: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Arguments:
    tensors = {name: v for name, v in by_name.items() if frameworks.holds_arrays(v)}
    fixed = {name: value for name, value in by_name.items() if name not in tensors}
    return Arguments((*args, *tensors.values()), tuple(tensors), fixed, defaults)


def _passed(parameters: Mapping[str, inspect.Parameter], count: int) -> list[str]:
    """The names of the parameters that `count` arguments by position are for."""
    return [name for name, one in parameters.items() if one.kind in _BY_POSITION][:count]


def _defaults(parameters: Mapping[str, inspect.Parameter], passed: set[str]) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty and name not in passed
    }


def _most_by_position(function: Callable[..., Any]) -> float:
    """How many arguments a function takes by position."""
    signature = signature_of(function, without_out=False)
    kinds = [] if signature is None else [one.kind for one in signature.parameters.values()]
    if signature is None or inspect.Parameter.VAR_POSITIONAL in kinds:
        return math.inf
    return sum(kind in _BY_POSITION for kind in kinds)


def _takes_by_name(function: Callable[..., Any], count: int) -> Callable[[str], bool]:
    """What tells whether a function that is called with `count` arguments takes one by a name."""
    signature = signature_of(function, without_out=False)
    parameters = {} if signature is None else signature.parameters
    passed = _passed(parameters, count)
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return lambda name: name not in passed
    names = {name for name, one in parameters.items() if one.kind in _BY_NAME}
    return lambda name: name in names and name not in passed

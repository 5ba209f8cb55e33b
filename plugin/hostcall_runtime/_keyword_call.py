"""Calls by keyword of functions that compiled programs call by position."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any


class KeywordCall:
    """A function that is called by position, and passes some of its arguments on by keyword.

    `names` are the keywords of the last arguments, None for one that is left out; `fixed` are
    further ones. Calls are equal if they call the same function in the same way, so that compiled
    programs can be shared. Values are the same if they are equal and of one type: 1 is not 1.0.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        names: Sequence[str | None] = (),
        fixed: Mapping[str, Any] = {},
    ) -> None:
        self.function = function
        self.__wrapped__ = function  # for messages, which name the function and its definition
        self.names = tuple(names)
        self.fixed = {name: _copied(value) for name, value in fixed.items()}
        self.key: Hashable = (self.names, _frozen(self.fixed))

    def __call__(self, *args: Any, **borrowed: Any) -> object:
        """Call the function; `borrowed` are further arguments by keyword."""
        count = len(args) - len(self.names)
        named = {
            name: value
            for name, value in zip(self.names, args[count:], strict=True)
            if name is not None
        }
        return self.function(*args[:count], **named, **self.fixed, **borrowed)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeywordCall):
            return NotImplemented
        return self.function == other.function and self.key == other.key

    def __hash__(self) -> int:
        return hash((self.function, self.key))

    @property
    def __name__(self) -> str:
        return str(self.function.__name__)

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters that are still open, in the order of the arguments."""
        signature = inspect.signature(self.function)
        taken = {*self.fixed, *self.names}
        parameters = [
            parameter.replace(default=parameter.empty)
            for parameter in signature.parameters.values()
            # Named arguments follow, so a parameter with a default was left out.
            if parameter.name not in taken
            and not (self.names and parameter.default is not parameter.empty)
        ]
        parameters += (
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in self.names
            if name is not None
        )
        return inspect.Signature(sorted(parameters, key=lambda one: one.kind))


class _Identity:
    """A key that is equal for one object alone, for objects without a hash."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _copied(value: Any) -> object:
    """Copy the lists and dicts in a value, so that later changes do not reach the copy."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _frozen(value: object) -> Hashable:
    """Return a key with a hash, equal for values that a function cannot tell apart."""
    if isinstance(value, dict):
        return type(value), *((_frozen(key), _frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value), *map(_frozen, value)
    if isinstance(value, float | complex):
        return type(value), repr(value)  # tells 0.0 from -0.0, and finds NaN equal to itself
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return type(value), value

"""How an exception of a callback travels through the stock kernel and comes out as it was.

That kernel knows a few status codes and adds a traceback whose frames are not the user's. So it is
given another exception, whose text holds the status code and the text that are meant;
host_script_op.cc takes them out again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._tf import token_registry
from hostcall_runtime import _error_texts, _errors

T = TypeVar("T")

_numbers = itertools.count(1)

# What the stock kernel, the entry in TensorFlow's registry and the text of an error need of frames.
_FRAMES = 60


class CarriedError(StopIteration):
    """What the stock kernel is given in the place of an exception.

    A StopIteration, since that is the only kind that it does not log.
    """


def carrier_of(exception: BaseException, spec: CallbackSpec | None = None) -> CarriedError:
    """What to raise to the stock kernel in the place of an exception of a spec's function."""
    if getattr(exception, "hostcall_message", False):
        code, text = getattr(exception, "code", _errors.INVALID_ARGUMENT), str(exception)
    else:
        code, text = _errors.describe(exception, spec)
    text = _error_texts.encodable(text)
    number = next(_numbers)
    text = f"[hostcall call {number}, status {code}] {text} [end of hostcall call {number}]"
    return CarriedError(text)


def raises_carrier(call: Callable[..., T]) -> Callable[..., T]:
    """A method that the stock kernel calls for a host op: errors come out as they were."""

    @functools.wraps(call)
    def run(self: Any, *args: Any) -> T:
        try:
            return call(self, *args)
        except BaseException as error:
            carrier = carrier_of(error, self.spec)
        try:
            raise carrier
        finally:
            del carrier  # it refers to this frame, and so to what the call has been given

    return run


def refusal(token: str, complaint: str) -> tuple[int, str] | None:
    """Why a call cannot be made that is nested in another one, if it cannot.

    Args:
      token: of the entry in TensorFlow's registry that is to be called.
      complaint: what is wrong with the thread's stack, or "".

    Returns:
      A status code and a text.
    """
    entry = token_registry.find(token)
    spec = entry if isinstance(entry, CallbackSpec) else None
    if complaint:
        description = spec.description if spec else token
        return _errors.RESOURCE_EXHAUSTED, f"{complaint}This is {description}."
    try:
        _descend(_FRAMES)
    except RecursionError as error:
        return _errors.describe(error, spec)
    return None


def _descend(frames: int) -> None:
    if frames:
        _descend(frames - 1)

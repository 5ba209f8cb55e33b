"""How an exception of a callback travels through the stock kernel and comes back as it was.

That kernel knows five status codes and adds a traceback whose frames are not the user's. So it is
given another exception, whose text holds the status code and the text that are meant. They are
found in it again when TensorFlow raises its error.
"""

from __future__ import annotations

import itertools
import re

import tensorflow as tf

from hostcall import _errors

_numbers = itertools.count(1)
_CARRIED = re.compile(
    r"\[hostcall call (\d+), status (\d+)\] (.*?) \[end of hostcall call \1\]", re.DOTALL
)
_TAIL = re.compile(r" \[Op:[^\]]*\]$")


class HostCallError(Exception):
    """What the stock kernel is given in the place of an exception."""


# TensorFlow tells the codes by these classes.
_CARRIERS: dict[int, type[BaseException]] = {
    code: type("HostCallError", (HostCallError, kind), {})
    for kind, code in (
        (ValueError, _errors.INVALID_ARGUMENT),
        (StopIteration, _errors.OUT_OF_RANGE),
        (MemoryError, _errors.RESOURCE_EXHAUSTED),
        (NotImplementedError, _errors.UNIMPLEMENTED),
    )
}


def carrier_of(exception: BaseException) -> BaseException:
    """What to raise to the stock kernel in the place of an exception."""
    if getattr(exception, "hostcall_prose", False):
        code, text = getattr(exception, "code", _errors.INVALID_ARGUMENT), str(exception)
    else:
        code, text = _errors.describe(exception)
    # What UTF-8 cannot encode would end the process, and NUL the text.
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    number = next(_numbers)
    text = f"[hostcall call {number}, status {code}] {text} [end of hostcall call {number}]"
    return _CARRIERS.get(code, HostCallError)(text)


def to_raise(error: tf.errors.OpError) -> BaseException | None:
    """What to raise in the place of the error of a function or of a session's run, if anything.

    Args:
      error: what TensorFlow has raised.
    """
    interrupt = _errors.interrupt_behind(error.message)
    if interrupt is not None:
        return interrupt
    carried = _CARRIED.search(error.message)
    if carried is None:
        return None
    tail = _TAIL.search(error.message)
    text = carried[3] + (tail[0] if tail else "")
    kind = tf.compat.v1.errors.exception_type_from_error_code(int(carried[2]))
    told: BaseException = kind(error.node_def, error.op, text)
    return told

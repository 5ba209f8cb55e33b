"""How an exception of a callback travels through the stock kernel and comes out as it was.

That kernel knows a few status codes and adds a traceback whose frames are not the user's. So it is
given another exception, whose text holds the status code and the text that are meant;
host_script_op.cc takes them out again.
"""

from __future__ import annotations

import itertools
from typing import Any

from hostcall_runtime import _error_texts, _errors

_numbers = itertools.count(1)


class HostCallError(StopIteration):
    """What the stock kernel is given in the place of an exception.

    A StopIteration, since that is the only kind that it does not log.
    """


def carrier_of(exception: BaseException, spec: Any = None) -> HostCallError:
    """What to raise to the stock kernel in the place of an exception of a spec's function."""
    if getattr(exception, "hostcall_prose", False):
        code, text = getattr(exception, "code", _errors.INVALID_ARGUMENT), str(exception)
    else:
        code, text = _errors.describe(exception, spec)
    text = _error_texts.encodable(text)
    number = next(_numbers)
    text = f"[hostcall call {number}, status {code}] {text} [end of hostcall call {number}]"
    return HostCallError(text)

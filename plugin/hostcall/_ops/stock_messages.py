"""Messages of TensorFlow's own kernels about results, completed by the place and a remedy.

In eager mode and plain graphs the stock kernel compares a script op's results with its dtypes. It
names the op by its token alone.
"""

from __future__ import annotations

import re
from typing import Any

from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf import token_registry
from hostcall_runtime import _remedies

_TOKEN = r"(?P<token>pyfunc_\w+|hostcall:.*)"  # the latter in a graph that may be saved
_WRONG_DTYPE = re.compile(
    rf"(?P<index>\d+)-th value returned by {_TOKEN} is (?P<actual>\w+), but expects (?P<dtype>\w+)"
)
_WRONG_COUNT = re.compile(
    rf"{_TOKEN} returns (?P<count>\d+) values, but expects to see \d+ values\."
)
# The text that TensorFlow adds to an error that a script op raises when XLA compiles it.
_OF_COMPILATION = re.compile(
    r"\n\nStack trace for op definition: \n.*?\n(?=\n\t \[\[)"
    r"|\n\ttf2xla conversion failed while converting .*? a dump of the compiled functions\.",
    re.DOTALL,
)
_COMPLETE = " This is "  # the runtime's own messages have it


# The error for a script op that nobody has an XLA kernel for.
_NO_KERNEL = re.compile(r"No registered '(?:Eager)?PyFunc(?:Stateless)?' OpKernel for XLA")


def note_switch(error: Any) -> None:
    """Add a note to an error of TensorFlow's that is due to `HOSTCALL_DISABLE`."""
    if _NO_KERNEL.search(str(error.message)):
        error.add_note(
            "hostcall is switched off: HOSTCALL_DISABLE is set in the environment. Unset it, or "
            "write hostcall.enable() before the function is called."
        )


def completed(message: str) -> str:
    """Return the message; if it is a stock one on results, with the function and a remedy."""
    if message.startswith("hostcall: "):
        return _OF_COMPILATION.sub("", message)
    found = _WRONG_DTYPE.search(message) or _WRONG_COUNT.search(message)
    if found is None or message[found.end() :].removeprefix(".").startswith(_COMPLETE):
        return message
    spec = token_registry.find_present(found["token"])
    if not isinstance(spec, CallbackSpec):
        return message
    dtypes = [dtype.name for dtype in spec.outputs.dtypes]
    if found.re is _WRONG_DTYPE:
        index, actual = int(found["index"]), found["actual"]
        remedy = _remedies.for_dtype(index, len(dtypes), found["dtype"], actual)
    else:
        remedy = _remedies.for_count(None if found["count"] == "0" else (), dtypes)
    message = message.replace(found["token"], spec.title)
    return f"{message}\nThis is {spec.description}.{remedy}"

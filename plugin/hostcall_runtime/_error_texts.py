"""The text that an exception of a callback travels as.

It is that of stock TensorFlow: type and message first, then the traceback in call order. An
exception may pass through many calls, each of which tells of the one below: there the text of the
lower call stands once, and each call above adds a line.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any, Protocol

# What leads from a text to its exception: see `hostcall_runtime._errors`.
MARK = re.compile(r"\[hostcall error (\d+)\b")
_FIRST_MARK = re.compile(r"\[hostcall error \d+: hostcall\.last_error\(e\) returns")

# TensorFlow searches each text for the name of a node, in quadratic time where there is none at the
# end.
_NODES = re.compile(r"\n\t \[\[\{\{node [^}\n]*\}\}\]\]|\{\{function_node [^}\n]*\}\} ?")
_EMPTY_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_UNKNOWN = "(unknown error message)"
_NO_NODE = "hostcall"

# Above the user's function: frames of ours, and of the wrapper that keeps autograph out.
_own_directories = [os.path.dirname(os.path.abspath(__file__)) + os.sep]
_WRAPPER = os.path.join("autograph", "impl", "api.py")
# Below it: where an inner call goes through.
_FRAMEWORKS = ("tensorflow", "keras", "jax", "jaxlib")

# A longer part of a traceback is not written twice.
_LONG = 10_000
_LONG_LINE = 100
_MANY_FRAMES = 8


def leave_out_frames_of(file: str) -> None:
    """From now on tracebacks do not show frames of the package whose `__init__.py` `file` is."""
    _own_directories.append(os.path.dirname(os.path.abspath(file)) + os.sep)


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's function on."""
    while trace is not None and _is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


class Call(Protocol):
    """What the text says of the call that fails.

    Attributes:
      description: the function and the call, with the file and line of both.
      node: TensorFlow's name of the op, or "".
    """

    description: str

    @property
    def node(self) -> str: ...

    def definition(self) -> list[str]:
        """The lines of the user's that have led to the call, as those of a traceback."""


def text_of(exception: BaseException, number: int, call: Call | None = None) -> str:
    """The text, which ends with the number and with the name of a node.

    Args:
      exception: what the user's function has raised, without the frames above that.
      number: under which the exception is kept.
      call: the call that fails; None where nothing is known of it any more.
    """
    head = f"{type(exception).__name__}{message_of(exception)}"
    if _passes_on(exception, head):
        text, mark = head, _passed_on(exception, number, call)
    else:
        text, mark = f"{head}\n{_trace(exception, head)}", f"{_place(call)}{mark_of(number)}"
    if MARK.search(text):
        text = _NODES.sub("", text)  # of the calls below
    node = (call.node if call is not None else "") or _NO_NODE
    return f"{text}\n{mark}\n\t [[{{{{node {node}}}}}]]"


def mark_of(number: int) -> str:
    """What leads to the exception that is kept under a number; "" for 0, where none is."""
    if not number:
        return ""
    return f"[hostcall error {number}: hostcall.last_error(e) returns the exception itself]"


def stand_in(
    exception: BaseException, bases: tuple[type[BaseException], ...], number: int, call: Call
) -> BaseException:
    """What to raise to the stock kernel for an exception whose text would not come out of it well.

    It has the name of the class, the first line of the message, and the rest as a note: the kernel
    writes the message twice, and notes once.

    Args:
      exception: what the user's function has raised.
      bases: the classes that the kernel knows; what is raised is of the same.
      number: under which the exception is kept.
      call: the call that fails.
    """
    text = encodable(text_of(exception, number, call)).rpartition("\n\t [[{{node ")[0]
    first, _, rest = text.partition("\n")
    if len(first) > _LONG_LINE and MARK.search(rest):  # the names of the errors of all calls below
        first = f"{first[:20]} ... {first[-_LONG_LINE:]}"
    known = next((base for base in bases if isinstance(exception, base)), Exception)
    names = {"__module__": type(exception).__module__, "__qualname__": type(exception).__qualname__}
    name = type(exception).__name__
    raised: BaseException = type(name, (known,), names)(first.removeprefix(f"{name}: "))
    raised.add_note(_EMPTY_LINES.sub("\n", rest))  # which the kernel adds, one to each line
    return raised


def can_be_written_twice(exception: BaseException) -> bool:
    """Whether the text of an exception tells of no other call and can be encoded, and has notes."""
    if message_of(exception) == _UNKNOWN or not isinstance(notes_of(exception), list):
        return False
    try:
        text = "".join(traceback.format_exception(exception))
    except RecursionError:
        return True
    return not MARK.search(text) and text == encodable(text)


def notes_of(exception: BaseException) -> Any:
    """The list of its notes, if nobody has put something else there."""
    return getattr(exception, "__notes__", [])


def encodable(text: str) -> str:
    """A text without what UTF-8 cannot encode, which would end the process, and without NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def message_of(exception: BaseException) -> str:
    """What follows the name of an exception's class."""
    try:
        return f": {exception}"
    except KeyboardInterrupt:
        raise
    except BaseException:
        return _UNKNOWN


def _passes_on(exception: BaseException, head: str) -> bool:
    """Whether all that an exception tells of is an inner call, with the traceback of that."""
    if not _FIRST_MARK.search(head):
        return False
    around = exception.__cause__ or (not exception.__suppress_context__ and exception.__context__)
    notes = notes_of(exception)
    noted = not isinstance(notes, list) or any(not MARK.search(str(note)) for note in notes)
    return not (around or noted or isinstance(exception, BaseExceptionGroup))


def _passed_on(exception: BaseException, number: int, call: Call | None) -> str:
    """The line of a call whose function has let the exception of an inner call through."""
    frames = _users_frames(exception.__traceback__)
    where = [frames] if frames else []
    if call is not None and call.description:
        where.append(f"in {call.description}")
    return f"Passed on by {', '.join(where) or 'a callback'} [hostcall error {number}]"


def _place(call: Call | None) -> str:
    if call is None or not call.description:
        return ""
    lines = call.definition()
    if not lines:
        return f"In {call.description}.\n"
    return f"In {call.description} (most recent call last):\n\n" + "\n".join(lines) + "\n\n"


def _users_frames(trace: TracebackType | None) -> str:
    """The frames of the user's function and what it has called, up to those of a framework."""
    internal = (*_own_directories, *_directories())
    frames = []
    for frame in traceback.extract_tb(trace, limit=_MANY_FRAMES):
        if frame.filename.startswith(internal):
            break
        frames.append(f"{frame.name} ({frame.filename}:{frame.lineno})")
    return ", ".join(frames)


def _directories() -> list[str]:
    files = [getattr(sys.modules.get(name), "__file__", None) for name in _FRAMEWORKS]
    return [os.path.dirname(file) + os.sep for file in files if file]


def _trace(exception: BaseException, head: str) -> str:
    """The traceback, without the texts of calls that have been written already."""
    seen = set(MARK.findall(head))
    parts = []
    try:
        whole = traceback.format_exception(exception)
    except RecursionError:
        return "(Its traceback is missing: Python had come to the limit of its recursion.)\n"
    for part in whole:
        marks = set(MARK.findall(part))
        again = marks <= seen if marks else len(part) > _LONG and part.strip()[-_LONG:] in head
        seen |= marks
        parts.append(_first_line(part) if again else part)
    return "\n".join(parts)


def _first_line(part: str) -> str:
    line = part.partition("\n")[0]
    return f"{line[:_LONG]} (... as above)\n"


def _is_own(filename: str) -> bool:
    return filename.startswith(tuple(_own_directories)) or filename.endswith(_WRAPPER)

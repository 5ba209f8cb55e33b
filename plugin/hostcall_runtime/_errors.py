"""Exceptions of callbacks: how they cross XLA as text and are raised again.

XLA carries a status code and a text, nothing else. So the text ends with a number, under which the
exception object is kept here for a while.

The text is the one of stock TensorFlow: type and message first, then the traceback in call order.
An exception may pass through many calls, each of which reports the call below it. Then the text of
the lowest call stands once, and each call above adds a line.
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import re
import sys
import traceback
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar

from hostcall_runtime import _locks


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 size`, `2 sizes`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


# Leads from a text to its exception: see the docstring of this module.
MARK = re.compile(r"\[hostcall error (\d+)\b")
_FIRST_MARK = re.compile(r"\[hostcall error \d+: hostcall\.last_error\(e\) returns")

# TensorFlow searches each text for the name of a node, in quadratic time unless it is at the end.
_NODES = re.compile(r"\n\t \[\[\{\{node [^}\n]*\}\}\]\]|\{\{function_node [^}\n]*\}\} ?")
_EMPTY_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_UNKNOWN = "(unknown error message)"
_NO_NODE = "hostcall"

# Above the user's function: hostcall's frames, and the wrapper that keeps autograph out.
_own_directories = [os.path.dirname(os.path.abspath(__file__)) + os.sep]
_WRAPPER = os.path.join("autograph", "impl", "api.py")
# Below it: the frameworks that an inner call goes through.
_FRAMEWORKS = ("tensorflow", "keras", "jax", "jaxlib")

# A part of a traceback that is longer than this is not written twice.
_LONG = 10_000
_LONG_LINE = 100
_MANY_FRAMES = 8


def leave_out_frames_of(file: str) -> None:
    """Hide a package's frames in tracebacks from now on; `file` is its `__init__.py`."""
    _own_directories.append(os.path.dirname(os.path.abspath(file)) + os.sep)


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the user's function on."""
    while trace is not None and is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def is_of_call(error: TypeError) -> bool:
    """Return whether an error comes from a call of hostcall's itself, and no line of the user's."""
    trace = error.__traceback__
    return without_own_frames(trace and trace.tb_next) is None


class FailingCall(Protocol):
    """The facts about a failing call for its error; the node is TensorFlow's op, or ""."""

    @property
    def description(self) -> str: ...

    @property
    def node(self) -> str: ...

    def definition(self) -> list[str]:
        """Return the user's source lines that led to the call, formatted as in a traceback."""


def text_of(exception: BaseException, number: int, call: FailingCall | None = None) -> str:
    """Return the text of an exception, with its number and the node of the call, if known."""
    head = f"{type(exception).__name__}{message_of(exception)}"
    if _passes_on(exception, head):
        text, mark = head, _passed_on(exception, number, call)
    else:
        text = _described(exception, head)
        mark = f"{_place(call, text, isinstance(exception, ResultError))}{mark_of(number)}"
    if MARK.search(text):
        text = _NODES.sub("", text)  # of the calls below
    node = (call.node if call is not None else "") or _NO_NODE
    return f"{text.rstrip()}\n{mark}\n\t [[{{{{node {node}}}}}]]"


def mark_of(number: int) -> str:
    """Return the mark that leads to the exception with a number; "" for 0, which keeps none."""
    if not number:
        return ""
    return f"[hostcall error {number}: hostcall.last_error(e) returns the exception itself]"


def stand_in(exception: BaseException, call: FailingCall) -> BaseException:
    """Return a substitute for an exception whose text the stock kernel would spoil."""
    # It has the name of the class, the first line of the message, and the rest as a note: the
    # kernel writes the message twice, and notes once. Its base is the kernel's class.
    number = remember(exception)
    text = encodable(text_of(exception, number, call)).rpartition("\n\t [[{{node ")[0]
    first, _, rest = text.partition("\n")
    names_calls_below = not _is_own_alone(exception) and MARK.search(rest)
    if len(first) > _LONG_LINE and names_calls_below:
        first = f"{first[:20]} ... {first[-_LONG_LINE:]}"
    known = next((base for base in _STOCK if isinstance(exception, base)), Exception)
    names = {"__module__": type(exception).__module__, "__qualname__": type(exception).__qualname__}
    name = type(exception).__name__
    raised: BaseException = type(name, (known,), names)(first.removeprefix(f"{name}: "))
    raised.add_note(_EMPTY_LINES.sub("\n", rest))  # the kernel adds an empty line to each line
    return raised


def can_be_written_twice(exception: BaseException) -> bool:
    """Return whether a text mentions no other call and can be encoded, and notes can be added."""
    if message_of(exception) == _UNKNOWN or not isinstance(notes_of(exception), list):
        return False
    try:
        text = "".join(traceback.format_exception(exception))
    except RecursionError:
        return True
    return not MARK.search(text) and text == encodable(text)


def notes_of(exception: BaseException) -> object:
    """Return the list of an exception's notes, or any object that user code has put there."""
    return getattr(exception, "__notes__", [])


def encodable(text: str) -> str:
    """Escape NUL, and characters that UTF-8 cannot encode: these would end the process."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def message_of(exception: BaseException) -> str:
    """Return the text that follows the name of an exception's class."""
    try:
        return f": {exception}"
    except KeyboardInterrupt:
        raise
    except BaseException:
        return _UNKNOWN


def _passes_on(exception: BaseException, head: str) -> bool:
    """Return whether an exception reports only an inner call, with that call's traceback."""
    if not _FIRST_MARK.search(head):
        return False
    around = exception.__cause__ or (not exception.__suppress_context__ and exception.__context__)
    notes = notes_of(exception)
    noted = not isinstance(notes, list) or any(not MARK.search(str(note)) for note in notes)
    return not (around or noted or isinstance(exception, BaseExceptionGroup))


def _passed_on(exception: BaseException, number: int, call: FailingCall | None) -> str:
    """Return the line of a call whose function let the exception of an inner call through."""
    frames = _users_frames(exception.__traceback__)
    where = [frames] if frames else []
    if call is not None and call.description:
        where.append(f"in {call.description}")
    return f"Passed on by {', '.join(where) or 'a callback'} [hostcall error {number}]"


def _described(exception: BaseException, head: str) -> str:
    """Return the type, the message and the traceback; less where these say nothing more."""
    if isinstance(exception, ResultError):
        return str(exception)
    if _is_own_alone(exception):
        return head
    around = exception.__cause__ or (not exception.__suppress_context__ and exception.__context__)
    if exception.__traceback__ is None and not around and not notes_of(exception):
        return f"{head}\n"
    return f"{head}\n{_trace(exception, head)}"


def _is_own_alone(exception: BaseException) -> bool:
    """Return whether hostcall has raised an exception, and its message says all."""
    # The causes of an ExecutorError are in its message; their tracebacks are the executor's own.
    return (
        isinstance(exception, ResultError | ExecutorError | DeadlineExceededError)
        and without_own_frames(exception.__traceback__) is None
        and not notes_of(exception)
    )


def _place(call: FailingCall | None, text: str, is_brief: bool) -> str:
    """Return the place of a call, and perhaps the user's lines that led to it."""
    if call is None or not call.description or call.description.partition("; ")[0] in text:
        return ""  # the text says it
    lines = [] if is_brief else call.definition()
    if not lines:
        return f"In {call.description}.\n"
    return f"In {call.description} (most recent call last):\n" + "\n".join(lines) + "\n"


def _users_frames(trace: TracebackType | None) -> str:
    """Return the frames of the user's function and its callees, up to those of a framework."""
    internal = (*_own_directories, *directories_of(*_FRAMEWORKS))
    frames = []
    for frame in traceback.extract_tb(trace, limit=_MANY_FRAMES):
        if frame.filename.startswith(internal):
            break
        frames.append(f"{frame.name} ({frame.filename}:{frame.lineno})")
    return ", ".join(frames)


def directories_of(*packages: str) -> tuple[str, ...]:
    """Return the source directories of those of the packages that are loaded."""
    files = [getattr(sys.modules.get(package), "__file__", None) for package in packages]
    return tuple(_directory_of(file) for file in files if file)


@functools.cache
def _directory_of(file: str) -> str:
    return os.path.dirname(os.path.abspath(file)) + os.sep


def _trace(exception: BaseException, head: str) -> str:
    """Return the traceback, without the texts of calls that have been written already."""
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
        first_line = part.partition("\n")[0]
        parts.append(f"{first_line[:_LONG]} (... as above)\n" if again else part)
    return _EMPTY_LINES.sub("\n", "".join(parts))


def is_own(filename: str) -> bool:
    """Return whether a file is hostcall's, or autograph's wrapper around the user's function."""
    return filename.startswith(tuple(_own_directories)) or filename.endswith(_WRAPPER)


T = TypeVar("T")

# Status codes of absl, the FFI and TensorFlow alike.
INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
UNKNOWN = 2
DEADLINE_EXCEEDED = 4


class DeadlineExceededError(TimeoutError):
    """The error of a callback that overruns its declared timeout; the message holds its stack."""


class ExecutorError(RuntimeError):
    """The error of a call that an executor could not make; the text gives reason and remedy.

    The executor's own exception, if there was one, is its `__cause__`.

    Examples:
      >>> import concurrent.futures
      >>> pool = concurrent.futures.ThreadPoolExecutor()
      >>> halve = hostcall.callback(lambda x: x / 2, result=lambda x: x, executor=pool)
      >>> pool.shutdown()
      >>> try:
      ...     halve(1.0)
      ... except tf.errors.OpError as error:
      ...     print(isinstance(hostcall.last_error(error), hostcall.ExecutorError))
      True
    """


class ProgramError(ValueError):
    """The error of an exported program that cannot be loaded, due to its files or its functions.

    The text says where the fault is, and gives its reason and remedy.

    Examples:
      >>> try:
      ...     hostcall.load("nowhere")
      ... except hostcall.ProgramError as error:
      ...     print(str(error).split(".")[0])
      nowhere: the directory does not exist
    """


class NotExportableError(ValueError):
    """The error of a function that cannot be exported; the text gives reason and remedy.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(lambda v: v + 1, [x], tf.TensorSpec([], tf.float32))
      >>> try:
      ...     hostcall.export(program, tf.TensorSpec([], tf.float32))
      ... except hostcall.NotExportableError as error:
      ...     print("<lambda>" in str(error))  # it has no name by which others find it
      True
    """


# As stock TensorFlow maps them (py_func.cc, DoCallPyFunc): the first match counts.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (ValueError, INVALID_ARGUMENT),
    (TypeError, INVALID_ARGUMENT),
    (StopIteration, OUT_OF_RANGE),
    (MemoryError, RESOURCE_EXHAUSTED),
    (NotImplementedError, UNIMPLEMENTED),
    (DeadlineExceededError, DEADLINE_EXCEEDED),
)

_STOCK = (ValueError, TypeError, StopIteration, MemoryError, NotImplementedError)

# An exception holds its frames and so their local variables: only the latest few are kept here. An
# error of TensorFlow's takes along the exceptions that its text mentions.
_KEPT = 16
_TOLD = "_hostcall_exceptions"

# TensorFlow's module whose script op raises a StopIteration at the end of a generator.
_GENERATORS = "tensorflow.python.data.ops.from_generator_op"

# The text that TensorFlow's kernel makes of a Ctrl-C in its own lines, before hostcall's.
_STOCK_INTERRUPT = re.compile(
    r"(?:\{\{.*?\}\}\s*)*KeyboardInterrupt: \nTraceback \(most recent call last\):\n"
)

_lock = _locks.new_lock()
_numbers = itertools.count(1)
_exceptions: collections.OrderedDict[int, BaseException] = collections.OrderedDict()
# TensorFlow's errors that have taken an exception along, the latest error for each number.
_tellers: weakref.WeakValueDictionary[int, BaseException] = weakref.WeakValueDictionary()
# Ctrl-C, until it is raised once more: failures of other threads must not evict it.
_interrupts: collections.OrderedDict[int, BaseException] = collections.OrderedDict()


class LoweringError(ValueError):
    """The error of a script op that cannot be compiled; the message says why and what to write.

    Examples:
      >>> @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([4], tf.float32)])
      ... def program(x):
      ...     return tf.numpy_function(np.unique, [x], tf.float32)
      >>> with hostcall.scope(route="custom_call"):
      ...     try:
      ...         program(tf.ones([4]))
      ...     except tf.errors.InvalidArgumentError as error:  # as TensorFlow raises it
      ...         message = error.message
      >>> "hostcall.declare(np.unique, result=" in message
      True
    """

    hostcall_message = True  # tells the C++ side that the message is for the user as it is


class NotInProgramError(LoweringError):
    """The error of a script op that no program can contain; graph partitioning can handle it."""

    hostcall_refusal = True  # tells the C++ side that this is a refusal, like one of XLA's


class ResultError(ValueError):
    """The error of an invalid result of a callback; the message says why."""

    hostcall_message = True

    def __init__(self, message: str, code: int = INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code


def last_error(error: BaseException | None = None) -> BaseException | None:
    """Return the exception that a callback raised, as the object that it was.

    TensorFlow raises its own error (`tf.errors.InvalidArgumentError` and so on) when a callback
    fails, and this error holds only text. `last_error` returns the exception behind it, with its
    type, attributes, traceback and cause.

    Args:
      error: the error that TensorFlow (or JAX) raised. None stands for the latest failure of any
        callback in this process; TensorFlow's error must still exist then.

    Returns:
      The exception, or None when no callback failed, or when `error` does not come from a callback.
      An exception is kept as long as TensorFlow's error for it; otherwise those of the latest 16
      failures are kept. The StopIteration that ends a `tf.data.Dataset.from_generator` is none.

    Examples:
      >>> def read(x):
      ...     raise KeyError("no such sensor")
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(read, [x], tf.TensorSpec([], tf.float32))
      >>> try:
      ...     program(1.0)
      ... except tf.errors.OpError as error:
      ...     raised = hostcall.last_error(error)
      >>> raised
      KeyError('no such sensor')
    """
    with _lock:
        if error is None:
            return _find(max([*_exceptions, *_interrupts, *_tellers], default=0))
        marks = MARK.findall(str(error))
        return _find(int(marks[-1]), error) if marks else None


def remember(exception: BaseException) -> int:
    """Keep `exception` for `last_error` and return its number; 0 if it is not kept."""
    if isinstance(exception, StopIteration) and _ends_dataset(exception):
        return 0
    kept = _interrupts if isinstance(exception, KeyboardInterrupt) else _exceptions
    with _lock:
        number = next(_numbers)
        kept[number] = exception
        old = [kept.popitem(last=False) for _ in range(len(kept) - _KEPT)]
    del old  # after the release of the lock: a `__del__` may wait for another thread's callback
    return number


def _ends_dataset(exception: StopIteration) -> bool:
    """Return whether it ends a `tf.data.Dataset.from_generator`, which nobody is told of."""
    frames = traceback.walk_tb(exception.__traceback__)
    return any(frame.f_globals.get("__name__") == _GENERATORS for frame, _ in frames)


def hand_over(error: BaseException, text: Any) -> None:
    """Attach to an error the exceptions that its text mentions: attributes may form cycles."""
    for mark in set(MARK.findall(text)) if isinstance(text, str) else ():
        with _lock:
            number = int(mark)
            exception = _find(number)
            if exception is not None and number not in _interrupts:
                vars(error).setdefault(_TOLD, {})[number] = exception
                _tellers[number] = error
                _exceptions.pop(number, None)


def _find(number: int, error: BaseException | None = None) -> BaseException | None:
    taken = [vars(e).get(_TOLD, {}) for e in (error, _tellers.get(number)) if e is not None]
    tables = (_exceptions, _interrupts, *taken)
    return next((table[number] for table in tables if number in table), None)


def for_stock_kernel(exception: BaseException, call: FailingCall) -> BaseException:
    """Return the exception to raise to the stock kernel: itself with its number in a note."""
    # If the kernel would spoil the text, it is a substitute. The kernel writes each text twice, so
    # the text would double with each call that an exception passes through.
    _unmark(exception)
    if not _is_own_alone(exception) and can_be_written_twice(exception):
        if note := mark_of(remember(exception)):
            exception.add_note(note)
        return exception
    exception.__traceback__ = without_own_frames(exception.__traceback__)
    return stand_in(exception, call)


def raises_for_stock_kernel(call: Callable[..., T]) -> Callable[..., T]:
    """Make a method that the stock kernel calls raise the exceptions of `for_stock_kernel`."""

    @functools.wraps(call)
    def run(self: FailingCall, *args: Any) -> T:
        try:
            return call(self, *args)
        except BaseException as error:
            told = for_stock_kernel(error, self)
            if told is error:
                error.__traceback__ = without_own_frames(error.__traceback__)
                del told  # it refers to this frame, and so to the arguments of the call
                raise
        try:
            raise told
        except BaseException:
            told.__traceback__ = None  # `raise` adds no frame to it
            raise
        finally:
            del told

    return run


def interrupt_behind(text: str) -> BaseException | None:
    """Return the Ctrl-C that ended a callback, if the text of an error reports one."""
    # It is forgotten here: raised once more, it holds the frames of the whole program.
    marks = MARK.findall(text)
    if marks:
        return _interrupts.pop(int(marks[-1]), None)
    return KeyboardInterrupt() if _STOCK_INTERRUPT.match(text) else None


def with_interrupts(hook: Callable[..., T]) -> Callable[..., T]:
    """Wrap `hook`, which runs while XLA compiles: Ctrl-C in it travels like that of a callback."""

    @functools.wraps(hook)
    def run(*args: Any) -> T:
        try:
            return hook(*args)
        except KeyboardInterrupt as interrupt:
            raise LoweringError(describe(interrupt)[1]) from None

    return run


def describe(exception: BaseException, call: FailingCall | None = None) -> tuple[int, str]:
    """Return the status code and the text of a callback's exception, and of its call if known."""
    exception.__traceback__ = without_own_frames(exception.__traceback__)
    code = next((code for kind, code in _CODES if isinstance(exception, kind)), UNKNOWN)
    return code, text_of(exception, remember(exception), call)


def _unmark(exception: BaseException) -> None:
    """Remove the notes of earlier calls."""
    notes = notes_of(exception)
    if isinstance(notes, list):
        notes[:] = [note for note in notes if not MARK.search(str(note))]

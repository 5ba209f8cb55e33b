"""`hostcall.record` and `hostcall.replay`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostcall._replay import calls
from hostcall._replay.calls import LOCK, RecordingError, Selection
from hostcall_runtime import _interception

_running: list[str] = []  # what records or replays now


def record(
    path: str | os.PathLike[str],
    *,
    only: Iterable[calls.Chosen] | None = None,
    overwrite: bool = False,
) -> contextlib.AbstractContextManager[None]:
    """Record the arguments and results of each call of a Python function in a file.

    `hostcall.replay` then runs the program again without the functions: without the simulator, the
    camera or the database. The page Recording lists the recorded values.

    Each call is in the file as soon as it has ended, even if the process dies later. Reading a file
    imports nothing, and runs nothing of what it names but classes of exceptions that are loaded.

    Args:
      path: the path of the file.
      only: the functions to record, or their names, with the module or without; None for all. A
        replay calls all other functions, so their calls may differ from this run.
      overwrite: whether to replace an existing recording.

    Raises:
      TypeError: when `only` holds anything else.
      ValueError: when `only` is empty.
      FileExistsError: when the file exists already; with `overwrite`, RecordingError if it is no
        recording.
      RecordingError: when the file cannot be written, or this process already records or replays.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/run.hostcall"
      >>> measure = hostcall.callback(lambda x: x + 0.5, result=lambda x: x)
      >>> program = tf.function(lambda x: 2 * measure(x), jit_compile=True)
      >>> with hostcall.record(file):
      ...     print(program(1.0).numpy())
      3.0
    """
    path = os.fspath(path)

    def recorder() -> object:
        from hostcall._replay.recorder import Recorder  # late, since SQLite imports slowly

        return Recorder(path, overwrite, _selection(only))

    return _answering(f"hostcall.record({path!r})", recorder)


def replay(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """Answer each call of a Python function from a file of `hostcall.record`.

    No recorded function is called, so its devices or data are not needed. The functions that the
    program names must exist under the same names, but may be any stand-ins.

    Calls of one function that were made one after the other must come in this order again. Calls
    that overlapped, and calls without side effects, are identified by their arguments.

    Args:
      path: the path of the file.

    Raises:
      RecordingError: when the file is missing, damaged or no recording, when it asks for more than
        a file of its size can hold, or when this process already records or replays.
      ReplayError: when the arguments of a call differ from the recorded ones in any bit, a call was
        not recorded, or the block ends before all recorded calls were made.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/run.hostcall"
      >>> @hostcall.callback(result=lambda x: x)
      ... def measure(x):
      ...     return x + 0.5
      >>> with hostcall.record(file):
      ...     _ = tf.function(lambda x: 2 * measure(x), jit_compile=True)(1.0)
      >>> @hostcall.callback(result=lambda x: x)
      ... def measure(x):
      ...     raise RuntimeError("the instrument is not here")
      >>> with hostcall.replay(file):
      ...     print(tf.function(lambda x: 2 * measure(x), jit_compile=True)(1.0).numpy())
      3.0
    """
    path = os.fspath(path)

    def replayer() -> object:
        from hostcall._replay.replayer import Replayer  # late, as above

        return Replayer(path)

    return _answering(f"hostcall.replay({path!r})", replayer)


@contextlib.contextmanager
def _answering(what: str, start: Callable[[], Any]) -> Iterator[None]:
    """Have calls answered in a block, by what `start` returns."""
    with LOCK:
        if _running:
            raise RecordingError(
                f"hostcall: {what} is called within {_running[0]}. One process records or replays "
                "one file at a time: end the other one first."
            )
        _running.append(what)
    with contextlib.ExitStack() as stack:
        stack.callback(_running.clear)
        interceptor = start()
        stack.push(lambda _kind, error, _traceback: interceptor.close(error))
        _interception.start(interceptor)
        stack.callback(_interception.stop)
        yield
        calls.wait_for_programs()


def _selection(only: Iterable[calls.Chosen] | None) -> Selection:
    """Return the selection that a user has made by names, functions and callbacks."""
    if only is None:
        return Selection(None)
    if isinstance(only, str) or callable(only):
        only = [only]
    names = [_name_of(chosen) for chosen in only]
    if not names:
        raise ValueError(
            "hostcall.record: only=[] leaves no function to record. Leave it out to record all."
        )
    return Selection(names)


def _name_of(chosen: object) -> str:
    if isinstance(chosen, str):
        return chosen
    if not callable(chosen):
        raise TypeError(
            f"hostcall.record: only= is for functions and their names, and {chosen!r} is neither."
        )
    function = getattr(chosen, "__hostcall_function__", None)
    if function is None:
        return _interception.name_of(chosen)
    return getattr(chosen, "name", None) or _interception.name_of(function)

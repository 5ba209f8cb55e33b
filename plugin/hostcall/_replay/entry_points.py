"""`hostcall.record` and `hostcall.replay`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from hostcall._replay import calls
from hostcall._replay.calls import LOCK, RecordingError, Selection
from hostcall_runtime import _interception

_running: list[str] = []  # what records or replays now


@contextlib.contextmanager
def record(
    path: str | os.PathLike[str],
    *,
    only: Iterable[calls.Chosen] | None = None,
    overwrite: bool = False,
) -> Iterator[None]:
    """Record the arguments and results of each call of a Python function in a file.

    `hostcall.replay` then runs the program again without the functions: without the simulator, the
    camera or the database. The page Recording lists the recorded values.

    Each call is in the file as soon as it has ended, even if the process dies later. Reading a file
    loads and runs no code, so a file from elsewhere does no harm.

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
    from hostcall._replay.recorder import Recorder  # late, since SQLite imports slowly

    path = os.fspath(path)
    with _alone(f"hostcall.record({path!r})"):
        recorder = Recorder(path, overwrite, _selection(only))
        try:
            with _answering(recorder):
                yield
        finally:
            recorder.close()


@contextlib.contextmanager
def replay(path: str | os.PathLike[str]) -> Iterator[None]:
    """Answer each call of a Python function from a file of `hostcall.record`.

    No recorded function is called, so its devices or data are not needed. The functions that the
    program names must exist under the same names, but may be any stand-ins.

    Calls of one function that were made one after the other must come in this order again. Calls
    that overlapped, and calls without side effects, are identified by their arguments.

    Args:
      path: the path of the file.

    Raises:
      RecordingError: when the file is missing, damaged or no recording, or when this process
        already records or replays.
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
    from hostcall._replay.replayer import Replayer  # imported late, as above

    path = os.fspath(path)
    with _alone(f"hostcall.replay({path!r})"):
        replayer = Replayer(path)
        error: BaseException | None = None
        try:
            with _answering(replayer):
                yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            replayer.close(error)


@contextlib.contextmanager
def _alone(what: str) -> Iterator[None]:
    with LOCK:
        if _running:
            raise RecordingError(
                f"hostcall: {what} is called within {_running[0]}. One process records or replays "
                "one file at a time: end the other one first."
            )
        _running.append(what)
    try:
        yield
    finally:
        _running.clear()


@contextlib.contextmanager
def _answering(interceptor: _interception.Interceptor) -> Iterator[None]:
    _interception.start(interceptor)
    try:
        yield
        calls.wait_for_programs()
    finally:
        _interception.stop()


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

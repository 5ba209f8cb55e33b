"""`hostcall.record` and `hostcall.replay`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator

from hostcall._replay import calls
from hostcall._replay.calls import LOCK, RecordingError
from hostcall_runtime import _interception

_running: list[str] = []


@contextlib.contextmanager
def record(
    path: str | os.PathLike[str],
    *,
    only: Iterable[calls.Chosen] | None = None,
    overwrite: bool = False,
) -> Iterator[None]:
    """Writes what each call of a Python function gets and gives into a file.

    It is for `hostcall.replay`, which runs the program once more without the functions: without the
    simulator, the camera or the database. See the page Recording for what is recorded.

    Each call is in the file as soon as it has ended, also if the process dies later. Nothing is
    loaded or run when a file is read, so that a file from elsewhere does no harm.

    Args:
      path: of the file.
      only: the functions to record, or their names, with the module or without; None for all. A
        replay calls all others, and so does not need these to be the same.
      overwrite: whether it takes the place of a recording that is there.

    Raises:
      TypeError: when `only` has something else.
      ValueError: when it is empty.
      FileExistsError: when there is such a file already; with `overwrite`, RecordingError if it is
        no recording.
      RecordingError: when the file cannot be written; when something is recorded or replayed in
        this process already.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/run.hostcall"
      >>> measure = hostcall.callback(lambda x: x + 0.5, result=lambda x: x)
      >>> program = tf.function(lambda x: 2 * measure(x), jit_compile=True)
      >>> with hostcall.record(file):
      ...     print(program(1.0).numpy())
      3.0
    """
    from hostcall._replay.recorder import Recorder  # which few need: SQLite takes its time

    path = os.fspath(path)
    with _alone(f"hostcall.record({path!r})"):
        recorder = Recorder(path, overwrite, calls.read(only))
        _interception.start(recorder)
        with _ending(recorder.close):
            yield


@contextlib.contextmanager
def replay(path: str | os.PathLike[str]) -> Iterator[None]:
    """Answers each call of a Python function from a file of `hostcall.record`.

    No function is called, so that what it needs need not be there. The functions that the program
    names have to exist: with the names that they had, and anything may stand in their place.

    Calls of one function that were made one after the other have to come in this order again. Calls
    that overlapped, and calls without side effects, are told apart by their arguments.

    Args:
      path: of the file.

    Raises:
      RecordingError: when there is no such file, or it is no recording, or damaged; when something
        is recorded or replayed in this process already.
      ReplayError: when a call has other arguments than recorded, bit for bit, or was not recorded,
        or when the block ends and recorded calls were not made.

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
    from hostcall._replay.replayer import Replayer  # likewise

    path = os.fspath(path)
    with _alone(f"hostcall.replay({path!r})"):
        replayer = Replayer(path)
        _interception.start(replayer)
        error: BaseException | None = None
        try:
            with _ending(lambda: None):
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
def _ending(close: Callable[[], None]) -> Iterator[None]:
    try:
        yield
        calls.wait_for_programs()
    finally:
        _interception.stop()
        close()

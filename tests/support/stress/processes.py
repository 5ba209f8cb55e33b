"""Python processes of their own, for what may hang, end the process or need memory to itself."""

import ctypes
import gc
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

_CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")

# TensorFlow's messages at its start, before 2.21 also of XLA, whatever TF_CPP_MIN_LOG_LEVEL is.
_BANNER = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) .*\n"
    r"|I0000 .* (port\.cc|service\.cc|device_compiler\.h):\d+\] .*\n"
)

# Ignores the warning of a TensorFlow that is newer than the tested ones.
_NEWER = "ignore:hostcall was tested with TensorFlow:RuntimeWarning"

# The seconds after which a function in a process hangs. They are many: on a busy machine, all takes
# several times as long, and only a test that fails waits for them.
LIMIT = 150.0

# The seconds for a process that ends neither by itself nor by its own limit.
_GRACE = 20.0

# The seconds for one that imports TensorFlow, Keras and JAX first, on a busy machine.
_START = 180.0


class Worker:
    """A process that runs code, and then functions in turn; a new one after each that has died."""

    def __init__(self, preparation: str = "") -> None:
        self._preparation = preparation
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`

    def run(self, function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> Any:
        """The result of the function, called in the process; both it and `args` are JSON."""
        grace = _GRACE
        if self._process is None:
            self._process = self._start()
            grace += _START
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        last_resort = threading.Timer(limit + grace, process.kill)
        last_resort.start()
        try:
            print(_call(function, args, limit), file=process.stdin, flush=True)
            line = process.stdout.readline()
        finally:
            last_resort.cancel()
        if not line:
            self._process = None
            process.stdin.close()
            process.stdout.close()
            raise AssertionError(f"ended with {process.wait()}:\n{self._said()}")
        result = json.loads(line)
        assert "error" not in result, result["error"]
        return result["value"]

    def close(self) -> None:
        """Lets the process exit, which must go without a hitch."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=LIMIT)
            finally:
                self._process.kill()  # if it hangs
            assert self._process.returncode == 0, self._said()
        self._errors.close()

    def _start(self) -> subprocess.Popen[str]:
        self._errors.seek(0)
        self._errors.truncate()
        return python(_CHILD, self._preparation, stderr=self._errors)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def start(
    function: Callable[..., Any], *args: Any, limit: float = LIMIT, group: bool = False
) -> subprocess.Popen[str]:
    """Starts a process that calls one function with JSON, and then exits by itself.

    With `group`, it and the processes that it starts get signals as in a terminal.
    """
    return python(_CHILD, "", _call(function, args, limit), start_new_session=group)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Sends Ctrl-C to the main thread of a process.

    One that is sent to the process goes to whichever thread comes first. That may be one which
    TensorFlow just starts, and then nothing wakes Python's main thread, in any program.
    """
    if ctypes.CDLL(None).tgkill(process.pid, process.pid, signal.SIGINT) != 0:
        raise ProcessLookupError(f"process {process.pid} has ended")


def interrupt_main_thread() -> None:
    gc.callbacks.clear()  # Python drops one that comes while one of them runs, as JAX's
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def finish(process: subprocess.Popen[str], limit: float = LIMIT) -> str:
    """Wait for a process to end with status 0 and without a message, and return its output."""
    try:
        printed, said = process.communicate(timeout=limit + _START + _GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    said = _BANNER.sub("", said)
    assert (process.returncode, said) == (0, ""), f"status {process.returncode}:\n{said}"
    return printed


def run_alone(function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> str:
    """Call a function in a process of its own, which must exit without error; return its output."""
    return finish(start(function, *args, limit=limit), limit)


def _call(function: Callable[..., Any], args: Any, limit: float) -> str:
    return json.dumps(
        {
            "file": os.path.abspath(inspect.getfile(function)),
            "function": function.__name__,
            "args": args,
            "limit": limit,
        },
        default=str,  # for paths
    )


def python(*arguments: str, stderr: Any = subprocess.PIPE, **how: Any) -> subprocess.Popen[str]:
    """Starts Python with pipes, without the variables that change what hostcall and XLA do."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HOSTCALL_DISABLE", "TF_XLA_FLAGS")
    }
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**environment, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": _NEWER},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        **how,
    )

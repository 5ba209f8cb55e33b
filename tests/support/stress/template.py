"""A process that has imported TensorFlow, and forks for each function or program to run.

The child ends by itself, as any Python process does. A new process would take four seconds more to
import the same. TensorFlow may be forked as long as it has run nothing.
"""

import atexit
import dataclasses
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.stress import child, processes
from tests.support.stress.processes import LIMIT

_ROOT = Path(__file__).resolve().parents[3]
_SCRIPT = "from tests.support.stress import template; template.serve({}, {})"

# Seconds beyond the limit for the function, for the code after Python's own end, where nothing else
# can tell that the process hangs.
_GRACE = 5

# Called at exit after all handlers that TensorFlow and hostcall have registered.
last_handlers: list[Callable[[], None]] = []


@dataclasses.dataclass
class Ended:
    """The end of a process: status, or minus the number of a signal; output; messages."""

    status: int
    printed: str
    said: str

    def assert_well(self, printed: str = "") -> None:
        assert (self.status, self.said) == (0, ""), f"status {self.status}:\n{self.said}"
        assert self.printed == printed


class Template:
    """The process that imports modules and forks.

    `ends_soon` leaves these modules out of Python's clearing up when a child ends, which takes a
    second; not for tests that are about the end.
    """

    def __init__(self, *modules: str, ends_soon: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory()
        script = _SCRIPT.format(modules, ends_soon)
        self._process = processes.python("-c", script, cwd=_ROOT)

    def run(self, function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> Ended:
        files = [str(Path(self._folder.name, name)) for name in ("printed", "said")]
        call = json.loads(processes._call(function, args, limit))
        print(json.dumps({**call, "files": files}), file=self._process.stdin, flush=True)
        status = self._process.stdout.readline()  # type: ignore[union-attr]
        printed, said = (Path(file).read_text() for file in files)
        return Ended(int(status), printed, processes._BANNER.sub("", said))

    def run_program(self, code: str, file: str = "<string>", **variables: str) -> Ended:
        """Has a child run a program as Python does, with environment variables of its own."""
        return self.run(run_as_main, code, file, variables, limit=300.0)

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


def run_as_main(code: str, file: str, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    main = types.ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"] = main
    sys.argv = [file]
    sys.path.insert(0, os.path.dirname(file))
    exec(compile(code, file, "exec"), main.__dict__)


def serve(modules: tuple[str, ...], ends_soon: bool) -> None:
    atexit.register(lambda: [handler() for handler in last_handlers])
    for module in modules:
        importlib.import_module(module)
    if ends_soon:
        gc.collect()
        gc.freeze()
    for line in sys.stdin:
        call = json.loads(line)
        child_id = os.fork()
        if child_id == 0:
            signal.alarm(int(call["limit"]) + _GRACE)
            for number, file in enumerate(call["files"], start=1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            child.run(call)
            return
        _, status = os.waitpid(child_id, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()

"""Workers as processes of their own, as an operator starts them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.serving.tokens import FUNCTIONS

ROOT = Path(__file__).resolve().parents[3]

# Python finds the tests' functions there.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "hostcall", "worker", *options]


class WorkerProcess:
    def __init__(self, path: str, options: Sequence[str] = ("--allow", FUNCTIONS)) -> None:
        self.path = path
        # Unlike a pipe, a file takes all messages; it is closed at the end.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command("--socket", path, *options),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd="/",
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()  # once it listens, or has ended

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)
        self._log.close()

    def ended(self) -> tuple[int, str]:
        self.process.communicate(timeout=60)
        with self._log:
            return self.process.returncode, self.log()

    def log(self) -> str:
        """The messages so far."""
        self._log.seek(0)
        return self._log.read()

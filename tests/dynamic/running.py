"""Runs cases in processes of their own, so that one that ends its process fails alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from tests.dynamic.cases import Case
from tests.dynamic.outcomes import DIED, TOO_LONG, Outcome

SECONDS_A_CASE = 90.0

# Each has compiled programs that stay in its memory.
CASES_A_PROCESS = 150

# For one that imports TensorFlow on a machine with much else to do.
_START = 180.0

# What a process says before it ends itself.
_FATAL = re.compile(r"^F\d{4} |Check failed|what\(\)|^corrupted|^double free|^free\(\)|^malloc")

_ROOT = Path(__file__).resolve().parents[2]


def run(
    cases: Iterable[Case], limit: float = SECONDS_A_CASE, checked: bool = False
) -> Iterator[tuple[Case, Outcome]]:
    """Run the cases in turn; a process that ends early is followed by one for the rest.

    Args:
      cases: the cases.
      limit: how many seconds each may take.
      checked: whether hostcall is to check the sizes of all compiled functions.

    Yields:
      Each case and what came of it.
    """
    left = iter(cases)
    while some := list(islice(left, CASES_A_PROCESS)):
        while some:
            for case, outcome in _run_process(some, limit, checked):
                yield case, outcome
                some = some[1:]


def _run_process(cases: list[Case], limit: float, checked: bool) -> Iterator[tuple[Case, Outcome]]:
    """Run the first of the cases, as many as the process gets through."""
    count = 0
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        order = {"cases": [case.id for case in cases], "limit": limit, "checked": checked}
        process, results = _start(order, said)
        last_resort = threading.Timer(_START + len(cases) * limit, process.kill)
        last_resort.start()
        try:
            for count, line in enumerate(results, 1):
                yield cases[count - 1], Outcome(**json.loads(line))
            status = process.wait()
        finally:
            last_resort.cancel()
            process.kill()
            results.close()
        said.seek(0)
        text = said.read()
    if status == 1 and "Timeout (" not in text:
        raise RuntimeError(f"the process of the cases has failed:\n{text}")
    if count < len(cases):
        yield cases[count], _unfinished(status, text)


def _start(order: dict[str, object], said: IO[str]) -> tuple[subprocess.Popen[bytes], IO[str]]:
    """Start a process; return it, and what it writes of the cases."""
    left_out = ("HOSTCALL_DISABLE", "HOSTCALL_ROUTE", "TF_XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dynamic.child", json.dumps({**order, "results": write})],
        env=environment | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        cwd=_ROOT,
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
    )
    os.close(write)
    return process, open(read)


def _unfinished(status: int, said: str) -> Outcome:
    if "Timeout (" in said:
        return Outcome(TOO_LONG, said[said.index("Timeout (") :][:600])
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    fatal = [line for line in said.splitlines() if _FATAL.search(line)]
    return Outcome(DIED, " ".join([how, *fatal[-1:]]))

"""Runs one test file in processes of its own, and tells what came of each test."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.upstream.suites import Suite

_CHILD = Path(__file__).with_name("child.py")
SECONDS_A_TEST = 180.0
SECONDS_A_PROCESS = 3600.0

# Stands for the file where it cannot even be imported.
WHOLE_FILE = "the whole file"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one test.

    Attributes:
      kind: "passed", "skipped", "failed with ValueError", "ended the process with -11", ...
      detail: the traceback, or what the process has said.
    """

    kind: str
    detail: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Order:
    """What a process is to do; see `child.py`.

    Attributes:
      source: the source tree.
      framework, file, mode, tests: as in `Suite`.
      hostcall: whether it imports hostcall.
      chosen: the tests that are run, by id; None for all.
      done: those that are not run again.
      results: the file that it writes.
      limit: how many seconds a test may take.
    """

    source: str
    framework: str
    file: str
    mode: str
    tests: str
    hostcall: bool
    chosen: list[str] | None
    done: list[str]
    results: str
    limit: float


def run(
    suite: Suite, source: str, hostcall: bool, chosen: list[str] | None = None,
    limit: float = SECONDS_A_TEST,
) -> dict[str, Outcome]:  # fmt: skip
    """Runs the tests of a file; a process that ends early is followed by one for the rest.

    Args:
      suite: the file, and in which way it is run.
      source: the source tree that it is in.
      hostcall: whether hostcall is imported.
      chosen: the ids of the tests; None for all.
      limit: how many seconds each may take.

    Returns:
      What came of each test, by its id.
    """
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        while True:
            order = Order(source, **dataclasses.asdict(suite), hostcall=hostcall, chosen=chosen,
                          done=list(found), results=str(results), limit=limit)  # fmt: skip
            results.write_text("")
            status, said = _run_process(order, folder)
            began, finished = _read(results, found)
            if finished:
                return found
            kind = "took too long" if "Timeout (" in said else f"ended the process with {status}"
            outcome = Outcome(kind, said[-6000:])
            if began is None:
                return found | {WHOLE_FILE: outcome}
            found[began] = outcome


def _run_process(order: Order, folder: str) -> tuple[int, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HOSTCALL_DISABLE", "HOSTCALL_ROUTE", "TF_XLA_FLAGS")
    }
    environment |= {"TEST_TMPDIR": folder, "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryFile("w+") as said:
        try:
            status = subprocess.run(
                [sys.executable, str(_CHILD), json.dumps(dataclasses.asdict(order))],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=SECONDS_A_PROCESS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
        said.seek(0)
        return status, said.read()


def _read(results: Path, found: dict[str, Outcome]) -> tuple[str | None, bool]:
    """Adds what a process has written; the test that it was in, and whether it got to the end."""
    began, finished = None, False
    for text in results.read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        finished |= "finished" in line
        began = line.get("begins")
        if "ends" in line:
            found[line["ends"]] = Outcome(line["outcome"], line["detail"])
    return began, finished

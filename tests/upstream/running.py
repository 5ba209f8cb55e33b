"""Runs one test file in processes of its own, and tells what came of each test."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.upstream import child
from tests.upstream.suites import Suite

_CHILD = Path(__file__).with_name("child.py")
SECONDS_A_TEST = 180.0
SECONDS_A_PROCESS = 3600.0

# Stands for the file where it cannot even be imported.
WHOLE_FILE = "the whole file"

TOO_LONG = "took too long"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one test.

    Attributes:
      kind: "passed", "skipped", "failed with ValueError", "ended the process with -11", ...
      detail: the traceback, or what the process has said.
      calls: how many compiled functions it has called, where these are counted.
    """

    kind: str
    detail: str = dataclasses.field(default="", compare=False)
    calls: int = dataclasses.field(default=0, compare=False)


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
      compiled: whether each function and each op that is run eagerly is compiled.
      budget: after how many seconds no other test begins.
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
    compiled: bool
    budget: float


Launch = Callable[[Order, str], tuple[int, str]]


def run(
    suite: Suite, source: str, hostcall: bool, chosen: list[str] | None = None,
    limit: float = SECONDS_A_TEST, compiled: bool = False, budget: float = SECONDS_A_PROCESS,
    journal: Path | None = None, launch: Launch | None = None,
) -> dict[str, Outcome]:  # fmt: skip
    """Runs the tests of a file; a process that ends early is followed by one for the rest.

    Args:
      suite: the file, and in which way it is run.
      source: the source tree that it is in.
      hostcall: whether hostcall is imported.
      chosen: the ids of the tests; None for all.
      limit: how many seconds each may take.
      compiled: whether each function and each op that is run eagerly is compiled.
      budget: after how many seconds a process begins no other test.
      journal: where the results are written as they come. What it holds is not run again.
      launch: what runs a process; None for one that is started anew.

    Returns:
      What came of each test, by its id.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = journal or Path(folder) / "results"
        results.touch()
        found, _, finished = _read(results)
        while not finished:
            order = Order(source, **dataclasses.asdict(suite), hostcall=hostcall, chosen=chosen,
                          done=list(found), results=str(results), limit=limit, compiled=compiled,
                          budget=budget)  # fmt: skip
            status, said = (launch or _run_process)(order, folder)
            found, began, finished = _read(results)
            if finished:
                break
            kind = TOO_LONG if "Timeout (" in said else f"ended the process with {status}"
            outcome = {"outcome": kind, "detail": said[-6000:]}
            with results.open("a") as file:
                if began is None:
                    print(json.dumps({"ends": WHOLE_FILE, **outcome, "finished": True}), file=file)
                else:
                    print(json.dumps({"ends": began, **outcome}), file=file)
            found, _, finished = _read(results)
        return found


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


def run_forked(order: Order, folder: str) -> tuple[int, str]:
    """Runs a process that has TensorFlow imported already, which takes longer than most files."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tensorflow"])
    said = Path(folder) / "said"
    with _environment(TF_CPP_MIN_LOG_LEVEL="3", TEST_TMPDIR=folder):
        process = server.Process(
            target=child.forked, args=(dataclasses.asdict(order), folder, str(said))
        )
        process.start()
    process.join(SECONDS_A_PROCESS)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode, said.read_text(errors="replace") if said.exists() else ""


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _read(results: Path) -> tuple[dict[str, Outcome], str | None, bool]:
    """What came of each test, the test that is not done, and whether all that should are."""
    found, began, finished = {}, None, False
    for text in results.read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        finished |= "finished" in line
        began = line.get("begins")
        if "ends" in line:
            found[line["ends"]] = Outcome(line["outcome"], line["detail"], line.get("calls", 0))
    return found, began, finished

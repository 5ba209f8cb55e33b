"""Runs one test file in processes of its own, and tells what came of each test."""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.upstream import child
from tests.upstream.suites import Suite

_CHILD = Path(__file__).with_name("child.py")
SECONDS_A_TEST = 180.0
SECONDS_A_PROCESS = 3600.0

# Stands for the file where it cannot even be imported.
WHOLE_FILE = "the whole file"

TOO_LONG = "took too long"

Order = dict[str, Any]  # of a process, as `child.py` describes it
Launch = Callable[[Order, str], tuple[int, str]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a test: its kind, such as "passed", a text, and the count of calls."""

    kind: str
    detail: str = dataclasses.field(default="", compare=False)
    calls: int = dataclasses.field(default=0, compare=False)


def known_differences(way: str) -> dict[str, dict[str, list[str]]]:
    """Return the tests that differ, by reason and file.

    The way is "imported" or "compiled", or "called" for JAX's tests of callbacks by our calls.
    """
    text = Path(__file__).with_name(f"{way}_differences.toml").read_text(encoding="utf-8")
    return {
        reason: {
            file: [f"upstream_{Path(file).stem}.{test}" for test in tests]
            for file, tests in files.items()
        }
        for reason, files in tomllib.loads(text).items()
    }


def known_of(way: str, suite: Suite) -> set[str]:
    """Return those of one file."""
    known = known_differences(way).values()
    return {test for files in known for test in files.get(suite.file, ())}


def in_turn(
    compare: Callable[[Suite, str], Any],
    chosen: Iterable[Suite],
    sources: dict[str, str],
    jobs: int | None,
) -> Iterator[tuple[Suite, Any]]:
    """Compare the files, some at a time, and yield each with what `compare` returns, in order."""
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        runs = {suite: pool.submit(compare, suite, sources[suite.framework]) for suite in chosen}
        for suite, job in runs.items():
            yield suite, job.result()


def run(
    suite: Suite, source: str, hostcall: bool, chosen: list[str] | None = None,
    limit: float = SECONDS_A_TEST, compiled: bool = False, budget: float = SECONDS_A_PROCESS,
    journal: Path | None = None, launch: Launch | None = None,
) -> dict[str, Outcome]:  # fmt: skip
    """Runs the tests of a file; a process that ends early is followed by one for the rest.

    The results are written to the journal as they come, and what it holds is not run again.
    `child.py` describes the other arguments. Returns what came of each test, by its id.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = journal or Path(folder) / "results"
        results.touch()
        found, _, finished = _read(results)
        order = {**dataclasses.asdict(suite), "source": source, "hostcall": hostcall}
        order |= {"chosen": chosen, "results": str(results), "limit": limit}
        order |= {"compiled": compiled, "budget": budget}
        while not finished:
            order["done"] = list(found)
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
    unset = ("HOSTCALL_DISABLE", "HOSTCALL_ROUTE", "TF_XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"TEST_TMPDIR": folder, "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryFile("w+") as said:
        try:
            status = subprocess.run(
                [sys.executable, str(_CHILD), json.dumps(order)],
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
    with mock.patch.dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", TEST_TMPDIR=folder):
        process = server.Process(target=child.forked, args=(order, folder, str(said)))
        process.start()
    process.join(SECONDS_A_PROCESS)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode, said.read_text(errors="replace") if said.exists() else ""


def _read(results: Path) -> tuple[dict[str, Outcome], str | None, bool]:
    """Read the outcome of each test, the unfinished test, and whether the run has finished."""
    found, began, finished = {}, None, False
    for text in results.read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        finished |= "finished" in line
        began = line.get("begins")
        if "ends" in line:
            found[line["ends"]] = Outcome(line["outcome"], line["detail"], line.get("calls", 0))
    return found, began, finished

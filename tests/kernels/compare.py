"""Comparing all calls of the catalogue, each batch in a process that may crash."""
# ruff: noqa: T201 - it prints its report

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.kernels import catalogue, difference, running
from tests.kernels.call import Call
from tests.kernels.calls_xla import XLA_ALONE
from tests.kernels.difference import Difference

# So many calls are compiled together; XLA's time grows faster than the number.
BATCH = 30
# A process gives back the memory of its programs when it ends.
_BATCHES_A_PROCESS = 60

Found = dict[int, list[Difference]]


def child(numbers: list[int], seed: int) -> None:
    """Judge the calls with these numbers, in batches, and print a line for each of them."""
    calls = catalogue.calls(seed)
    for begin in range(0, len(numbers), BATCH):
        batch = numbers[begin : begin + BATCH]
        print(json.dumps({"begin": batch}), flush=True)
        for number, found in running.judge({number: calls[number] for number in batch}):
            print(json.dumps({"number": number, "found": [vars(one) for one in found]}))
    sys.stdout.flush()


def judge_all(numbers: list[int], seed: int) -> Found:
    """Return the differences of the calls with these numbers."""
    found: Found = {}
    size = BATCH * _BATCHES_A_PROCESS
    for begin in range(0, len(numbers), size):
        todo = numbers[begin : begin + size]
        while todo:
            batch = _run(todo, seed, found)
            todo = [number for number in todo if number not in found]
            if batch:
                _run_apart([number for number in batch if number not in found], seed, found)
                todo = [number for number in todo if number not in found]
    return found


def comparable(calls: list[Call]) -> list[int]:
    """Return the numbers of the calls whose ops have two kernels that may differ."""
    return [number for number, call in enumerate(calls) if call.kind != XLA_ALONE]


def report(found: Found, calls: list[Call]) -> None:
    """Print each difference, and how many there are of each class and op."""
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for number, differences in sorted(found.items(), key=lambda item: calls[item[0]].op):
        call = calls[number]
        for one in differences:
            what = f"{one.what} ({call.kind})" if call.kind else one.what
            table[what][call.op] += 1
            print(f"{what} | {number} {call.text()} | result {one.result}: {one.text}", end="")
            print(f" | {one.error:.3g} times what is allowed" if one.error else "")
    print()
    for what, counts in sorted(table.items()):
        ops = ", ".join(f"{op} {count}" for op, count in counts.most_common())
        print(f"== {what}: {counts.total()} of {len(counts)} ops: {ops}")


def _run(numbers: list[int], seed: int, found: Found) -> list[int]:
    """Fill `found`; return the batch that ended the process, if one has."""
    batch: list[int] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kernels", "child", "--seed", str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin:
        process.stdin.write(json.dumps(numbers))
    for message in _messages(process.stdout):
        if "begin" in message:
            batch = message["begin"]
        else:
            found[message["number"]] = [Difference(**one) for one in message["found"]]
    return batch if process.wait() else []


def _run_apart(numbers: list[int], seed: int, found: Found) -> None:
    """Judge each call in a process of its own, as one of them crashes."""
    for number in numbers:
        if _run([number], seed, found) and number not in found:
            found[number] = [Difference(difference.CRASH)]


def _messages(lines: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("{"):
            yield json.loads(line)

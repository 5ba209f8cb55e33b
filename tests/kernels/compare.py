"""Comparing all calls of the catalogue, each batch in a process that may crash."""
# ruff: noqa: T201 - it prints its report

import collections
import contextlib
from typing import Any

from tests.kernels import catalogue, difference, running
from tests.kernels.call import Call
from tests.kernels.calls_xla import XLA_ALONE
from tests.kernels.difference import Difference
from tests.support.stress.processes import Worker

# So many calls are compiled together; XLA's time grows faster than the number.
BATCH = 30
# A process gives back the memory of its programs when it ends.
_BATCHES_A_PROCESS = 60
_SECONDS_A_BATCH = 1800.0

Found = dict[int, list[Difference]]


def judged(numbers: list[int], seed: int) -> dict[int, list[dict[str, Any]]]:
    calls = catalogue.calls(seed)
    batch = {number: calls[number] for number in numbers}
    return {number: [vars(one) for one in found] for number, found in running.judge(batch)}


def run(seed: int, only: set[str]) -> None:
    calls = catalogue.calls(seed)
    # Of XLA's own ops there are no two kernels that may differ.
    numbers = [n for n, call in enumerate(calls) if call.kind != XLA_ALONE]
    numbers = [n for n in numbers if not only or calls[n].op in only]
    found: Found = {}
    size = BATCH * _BATCHES_A_PROCESS
    for first in range(0, len(numbers), size):
        with contextlib.closing(Worker()) as worker:
            for begin in range(first, min(first + size, len(numbers)), BATCH):
                found |= _judge(worker, numbers[begin : begin + BATCH], seed)
    _report(found, calls)


def _judge(worker: Worker, numbers: list[int], seed: int) -> Found:
    try:
        found = worker.run(judged, numbers, seed, limit=_SECONDS_A_BATCH)
    except AssertionError:  # one of the calls has ended the process
        if len(numbers) == 1:
            return {numbers[0]: [Difference(difference.CRASH)]}
        alone = [_judge(worker, [number], seed) for number in numbers]
        return {number: each for one in alone for number, each in one.items()}
    return {int(n): [Difference(**one) for one in each] for n, each in found.items()}


def _report(found: Found, calls: list[Call]) -> None:
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

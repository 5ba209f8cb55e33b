"""Runs random programs that nobody compiles with hostcall and without, and compares the two."""

from collections.abc import Iterable
from typing import Any

from tests.differential.plain import outcomes
from tests.differential.program import Block, Program
from tests.support.stress.processes import Worker

_SECONDS = 120.0

# The number of runs of stock for a program whose outcome differs with hostcall. Functions do not
# order a callback and a branch with a variable, so that the outcomes of stock differ, too.
_TRIES = 60

_V1 = "import tensorflow as tf; tf.compat.v1.disable_v2_behavior()\n"

# For each version of TensorFlow's behaviour: the first code of its processes, and the ways.
_VERSIONS = {
    "v2": ("import tensorflow\n", ("eager mode", "a function")),
    "v1": (_V1, ("a session", "a function in a session")),
}

# The results of these depend on the order of ops, which a graph of TensorFlow 1 does not have.
_ORDERED = {"read", "assign", "scatter", "count_up", "entries", "python_variable", "fail_above"}


class Unjitted:
    """Two processes for each version of TensorFlow's behaviour: with hostcall, and without."""

    def __init__(self) -> None:
        self._workers = {
            (version, with_hostcall): Worker(preparation + "import hostcall\n" * with_hostcall)
            for version, (preparation, _) in _VERSIONS.items()
            for with_hostcall in (False, True)
        }

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()

    def check(self, program: Program) -> set[str]:
        events: set[str] = {f"gradient {program.gradient}"}
        found: list[str] = []
        for version, (_, ways) in _VERSIONS.items():
            for way in ways:
                # What depends on the order of ops or on a tape does not run in a session.
                if way == "a session" and (program.gradient or _ops_of(program.body) & _ORDERED):
                    continue
                events.add(way)
                found += self._differences(program, version, way, events)
        assert not found, "\n".join([*found, repr(program)])
        return events

    def _differences(
        self, program: Program, version: str, way: str, events: set[str]
    ) -> Iterable[str]:
        stock, ours = (self._run(program, version, way, with_it) for with_it in (False, True))
        seen = [stock]
        while len(seen) < _TRIES and not _all_among(ours, seen):
            seen.append(self._run(program, version, way, False))
        for number, outcome in enumerate(ours):
            expected = [each[number] for each in seen]
            failed = any(isinstance(one["values"], str) for one in expected)
            events |= {f"stock fails in {way}"} if failed else set()
            if outcome not in expected and program.gradient and failed:
                events.add("a gradient that stock cannot compute")
            elif outcome not in expected:
                yield f"{way}, call {number}: {outcome} with hostcall, and {expected[0]} without"

    def _run(self, program: Program, version: str, way: str, with_hostcall: bool) -> Any:
        worker = self._workers[version, with_hostcall]
        return worker.run(outcomes, repr(program), way, with_hostcall, limit=_SECONDS)


def _all_among(outcomes: list[Any], seen: list[list[Any]]) -> bool:
    """Return whether the outcome of each call occurs in at least one of the runs."""
    return all(o in (run[i] for run in seen) for i, o in enumerate(outcomes))


def _ops_of(block: Block) -> set[str]:
    inner = [_ops_of(body) for statement in block.statements for body in statement.blocks]
    return {statement.op for statement in block.statements}.union(*inner)

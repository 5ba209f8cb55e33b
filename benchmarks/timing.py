"""The timing of programs side by side: a machine that gets slower does so for all of them."""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Run = Callable[[], object]
Around = Callable[[], AbstractContextManager[object]]


class Effort(NamedTuple):
    """The time that a question may take: many rounds to measure, few to see that it runs."""

    rounds: int = 21
    seconds_a_round: float = 0.02  # of each program
    part: float = 1.0  # of the sizes and counts of the question

    def of(self, count: int) -> int:
        """Return the count of calls, or the size, to use in place of this one."""
        return max(1, int(count * self.part))

    def times(self, factor: float) -> "Effort":
        """Return the same effort with `factor` times the rounds: fewer for slow programs."""
        return self._replace(rounds=max(1, round(self.rounds * factor)))


# benchmarks.compare sets the variable: it may have several runs of fewer rounds.
FULL = Effort(rounds=int(os.environ.get("HOSTCALL_BENCHMARK_ROUNDS", Effort().rounds)))
QUICK = Effort(rounds=2, seconds_a_round=0.0, part=0.01)


class Samples(NamedTuple):
    """Numbers, one per round, for example the seconds of a call, or the ratio of two programs."""

    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.values) == 1:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    def over(self, peer: "Samples") -> "Samples":
        """Return the ratio to the peer's seconds, round by round."""
        return Samples([a / b for a, b in zip(self.values, peer.values, strict=True)])

    def less(self, peer: "Samples") -> "Samples":
        """Return the seconds more than the peer's, round by round."""
        return Samples([a - b for a, b in zip(self.values, peer.values, strict=True)])

    def per(self, count: int) -> "Samples":
        """Return the seconds of one of the `count` calls that the program makes."""
        return Samples([value / count for value in self.values])


def seconds_of_calls(run: Run, count: int) -> float:
    """Return the seconds per call of `count` calls in a row, with the wait for the last result."""
    result = run()  # not timed: the program before has left its data in caches and free memory
    start = time.perf_counter()
    for _ in range(count):
        result = run()
    if hasattr(result, "numpy"):
        memoryview(result)  # type: ignore[arg-type] # waits, where numpy() would copy as well
    return (time.perf_counter() - start) / count


def in_turn(programs: Mapping[Key, Value], rounds: int) -> Iterator[list[tuple[Key, Value]]]:
    """Yield the programs of each round, every other time backwards: the second may cost less."""
    for number in range(rounds):
        yield list(programs.items())[:: -1 if number % 2 else 1]


def measure(
    programs: Mapping[Key, Run], effort: Effort = FULL, around: Mapping[Key, Around] | None = None
) -> dict[Key, Samples]:
    """Call all programs in turn, round after round, and return the seconds of their calls.

    `around` has the context managers of programs' calls, by the program. They are entered and left
    outside of the measured time.
    """
    within = {key: (around or {}).get(key, contextlib.nullcontext) for key in programs}
    counts = {}
    for key, run in programs.items():
        with within[key]():
            run()  # traces and compiles
            counts[key] = max(1, int(effort.seconds_a_round / seconds_of_calls(run, 3)))
    samples: dict[Key, list[float]] = {key: [] for key in programs}
    for turn in in_turn(programs, effort.rounds):
        for key, run in turn:
            with within[key]():
                samples[key].append(seconds_of_calls(run, counts[key]))
    return {key: Samples(values) for key, values in samples.items()}


def cpu_seconds(run: Run) -> float:
    """Return the CPU seconds of a call, those of all threads of the process."""
    start = time.process_time()
    run()
    return time.process_time() - start


def measure_once_a_round(
    makes: Mapping[Key, Callable[[], float]], effort: Effort = FULL
) -> dict[Key, Samples]:
    """Collect the seconds that each function returns, in turn, after a first call that is dropped.

    This is for work that happens once per program, like compiling: each call makes a new program.
    """
    for make in makes.values():
        make()
    samples: dict[Key, list[float]] = {key: [] for key in makes}
    for turn in in_turn(makes, effort.rounds):
        for key, make in turn:
            samples[key].append(make())
    return {key: Samples(values) for key, values in samples.items()}

"""Times programs side by side, so that a machine that gets slower does so for all of them."""

import contextlib
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
    """How much time a question may take: many rounds to measure, few to see that it runs."""

    rounds: int = 21
    seconds_a_round: float = 0.02  # of each program
    part: float = 1.0  # of the sizes and counts of the question

    def of(self, count: int) -> int:
        """The count of calls, or size, to take in the place of this one."""
        return max(1, int(count * self.part))

    def times(self, factor: float) -> "Effort":
        """The same with so many times the rounds: fewer for what takes long."""
        return self._replace(rounds=max(1, round(self.rounds * factor)))


FULL = Effort()
QUICK = Effort(rounds=2, seconds_a_round=0.0, part=0.01)


class Samples(NamedTuple):
    """Numbers, one of each round: the seconds of a call, say, or how two programs compare."""

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

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a part of the median."""
        low, high = self.quartiles
        return (high - low) / self.median

    def over(self, peer: "Samples") -> "Samples":
        """How many times the peer's seconds, round by round."""
        return Samples([a / b for a, b in zip(self.values, peer.values, strict=True)])

    def less(self, peer: "Samples") -> "Samples":
        """How many seconds more than the peer, round by round."""
        return Samples([a - b for a, b in zip(self.values, peer.values, strict=True)])

    def per(self, count: int) -> "Samples":
        """The seconds of one of `count` calls that the program makes."""
        return Samples([value / count for value in self.values])


def seconds_of_calls(run: Run, count: int) -> float:
    """The seconds of a call, when so many follow each other and the last result is waited for."""
    result = run()  # whatever ran before has had the caches, and the memory that was free
    start = time.perf_counter()
    for _ in range(count):
        result = run()
    if hasattr(result, "numpy"):
        memoryview(result)  # type: ignore[arg-type] # waits, where numpy() would copy as well
    return (time.perf_counter() - start) / count


def in_turn(programs: Mapping[Key, Value], rounds: int) -> Iterator[list[tuple[Key, Value]]]:
    """The programs of each round; every other one backwards, since to come second may cost less."""
    for number in range(rounds):
        yield list(programs.items())[:: -1 if number % 2 else 1]


def measure(
    programs: Mapping[Key, Run], effort: Effort = FULL, around: Mapping[Key, Around] | None = None
) -> dict[Key, Samples]:
    """Calls all programs in turn, round after round.

    `around` has what a program's calls run within: a context manager, entered and left outside of
    the time that counts.
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


def measure_once_a_round(
    makes: Mapping[Key, Callable[[], float]], effort: Effort = FULL
) -> dict[Key, Samples]:
    """Takes the seconds that each function returns, in turn, after a first time that is dropped.

    For what cannot be called twice, such as tracing and compiling: each call makes its own.
    """
    for make in makes.values():
        make()
    samples: dict[Key, list[float]] = {key: [] for key in makes}
    for turn in in_turn(makes, effort.rounds):
        for key, make in turn:
            samples[key].append(make())
    return {key: Samples(values) for key, values in samples.items()}

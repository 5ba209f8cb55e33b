"""Times programs side by side, so that a machine that gets slower does so for all of them."""

import statistics
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

ROUNDS = 9
SECONDS_A_ROUND = 0.02

Key = TypeVar("Key", bound=Hashable)
Run = Callable[[], object]


class Samples(NamedTuple):
    """The seconds of one call, in one round after another."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a part of the median."""
        quartiles = statistics.quantiles(self.seconds, n=4)
        return (quartiles[2] - quartiles[0]) / self.median


def seconds_of_calls(run: Run, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        result = run()
    if hasattr(result, "numpy"):
        result.numpy()
    return (time.perf_counter() - start) / count


def measure(programs: dict[Key, Run], rounds: int = ROUNDS) -> dict[Key, Samples]:
    """Calls all programs in turn, round after round."""
    counts = {}
    for key, run in programs.items():
        run()  # traces and compiles
        counts[key] = max(1, int(SECONDS_A_ROUND / seconds_of_calls(run, 3)))
    samples: dict[Key, list[float]] = {key: [] for key in programs}
    for _ in range(rounds):
        for key, run in programs.items():
            samples[key].append(seconds_of_calls(run, counts[key]))
    return {key: Samples(values) for key, values in samples.items()}

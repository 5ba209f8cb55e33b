"""The time of importing hostcall after its framework."""

import json
import os
import subprocess
import sys

from benchmarks.report import Row, alone, at_most_more, beside
from benchmarks.timing import FULL, Effort, Samples

TITLE = "Import, each in a process of its own"

# Each framework, hostcall's module for it, and the most seconds that this module may take.
IMPORTS = [("tensorflow", "hostcall", 0.1), ("jax", "hostcall.jax", 0.06)]

# Measured in one process: a framework's time varies between processes by more than hostcall takes.
SCRIPT = """
import gc, time
start = time.perf_counter()
import {framework}
between = time.perf_counter()
if not {collected}:
    gc.disable()
import {module}
print([between - start, time.perf_counter() - start])
"""


def seconds_of_imports(framework: str, module: str, collected: bool) -> tuple[float, float]:
    # With cached bytecode, as in every import but the first.
    cached = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    script = SCRIPT.format(framework=framework, module=module, collected=collected)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=cached
    )
    without, with_hostcall = json.loads(done.stdout.splitlines()[-1])
    return without, with_hostcall


def samples_of(framework: str, module: str, collected: bool, effort: Effort) -> list[Samples]:
    """Return the seconds of importing the framework, and of importing both."""
    if effort.part == 1:
        seconds_of_imports(framework, module, collected)  # the first one reads from the disk
    rounds = effort.times(0.4).rounds
    found = [seconds_of_imports(framework, module, collected) for _ in range(rounds)]
    return [Samples(list(values)) for values in zip(*found, strict=True)]


def rows_of(framework: str, module: str, limit: float, effort: Effort) -> list[Row]:
    first, both = f"import {framework}", f"import {framework}, {module}"
    without = f"{both}, no garbage collection in the second"
    samples = dict(zip((first, both), samples_of(framework, module, True, effort), strict=True))
    # The framework's objects trigger a garbage collection, which visits all of them.
    others = dict(zip((first, without), samples_of(framework, module, False, effort), strict=True))
    return [
        alone(first, samples[first]),
        beside(samples, both, first, at_most_more(limit)),
        beside(others, without, first),
    ]


def main(effort: Effort = FULL) -> list[Row]:
    some = IMPORTS[: effort.of(len(IMPORTS))]
    return [row for one in some for row in rows_of(*one, effort)]

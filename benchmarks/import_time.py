"""What does importing hostcall take, where the framework is imported already?"""

import json
import os
import subprocess
import sys

from benchmarks.report import Row, alone, at_most_more, beside, show
from benchmarks.timing import FULL, Effort, Samples

TITLE = "Import, each in a process of its own"

# Each framework, our module for it, and the most seconds that it may take.
IMPORTS = [("tensorflow", "hostcall", 0.15), ("jax", "hostcall.jax", 0.06)]

# One process tells both: what a framework takes differs more from one to the next than hostcall.
SCRIPT = """
import time
start = time.perf_counter()
import {framework}
between = time.perf_counter()
import {module}
print([between - start, time.perf_counter() - start])
"""


def seconds_of_imports(framework: str, module: str) -> tuple[float, float]:
    # With bytecode, as wherever it is imported for the second time.
    cached = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    script = SCRIPT.format(framework=framework, module=module)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=cached
    )
    without, with_hostcall = json.loads(done.stdout.splitlines()[-1])
    return without, with_hostcall


def rows_of(framework: str, module: str, limit: float, effort: Effort) -> list[Row]:
    if effort.part == 1:
        seconds_of_imports(framework, module)  # the first one reads from the disk
    rounds = effort.times(0.4).rounds
    found = [seconds_of_imports(framework, module) for _ in range(rounds)]
    without, with_hostcall = zip(*found, strict=True)
    names = f"import {framework}", f"import {framework}, {module}"
    samples = dict(zip(names, map(Samples, map(list, (without, with_hostcall))), strict=True))
    return [
        alone(names[0], samples[names[0]]),
        beside(samples, names[1], names[0], at_most_more(limit)),
    ]


def main(effort: Effort = FULL) -> list[Row]:
    rows = [row for one in IMPORTS for row in rows_of(*one, effort)]
    show(TITLE, rows)
    return rows


if __name__ == "__main__":
    main()

"""What does importing hostcall take, where TensorFlow is imported already?"""

import json
import subprocess
import sys

from benchmarks.report import Row, alone, at_most_more, beside, show
from benchmarks.timing import FULL, Effort, Samples

TITLE = "Import, each in a process of its own"

WITHOUT = "import tensorflow"
WITH = "import tensorflow, hostcall"

# One process tells both: what TensorFlow takes differs more from one to the next than hostcall.
SCRIPT = """
import time
start = time.perf_counter()
import tensorflow
between = time.perf_counter()
import hostcall
print([between - start, time.perf_counter() - start])
"""


def seconds_of_imports() -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    without, with_hostcall = json.loads(done.stdout.splitlines()[-1])
    return without, with_hostcall


def main(effort: Effort = FULL) -> list[Row]:
    if effort.part == 1:
        seconds_of_imports()  # the first one reads from the disk
    rounds = [seconds_of_imports() for _ in range(effort.times(0.4).rounds)]
    without, with_hostcall = zip(*rounds, strict=True)
    samples = {WITHOUT: Samples(list(without)), WITH: Samples(list(with_hostcall))}
    rows = [alone(WITHOUT, samples[WITHOUT]), beside(samples, WITH, WITHOUT, at_most_more(0.15))]
    show(TITLE, rows)
    return rows


if __name__ == "__main__":
    main()

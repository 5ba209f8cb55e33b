"""Runs thousands of random programs in all ways, and shows the smallest ones that differ.

    python -m tests.differential [COUNT] [--seed FIRST]
                                 [--exported | --unjitted | --checked | --raising]

With --exported they are exported, loaded in all ways and compared with the compiled functions; what
cannot be exported for a reason that the guide tells is counted as refused. With --unjitted they are
not compiled: processes with hostcall and without it run them, in eager mode, in functions and in
sessions of TensorFlow 1. With --checked they have neither callbacks nor ops that XLA lacks, and are
compiled with `hostcall.configure(functions="all")`. With --raising they have ops that graph mode
refuses for some values, and errors are compared.

The programs run in rounds, each with a seed and a process of its own, so that a crash and a hang
are found as well. `python -m tests.differential ROUND --seed SEED` repeats one round.
"""
# ruff: noqa: T201 - it prints its report

import argparse
import collections
import contextlib
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.differential.rounds import run_round
from tests.support.stress.processes import Worker

ROUND = 100
# Programs take a second each; the rest is for making a failing one smaller.
SECONDS_A_ROUND = 1500.0


def one_round(seed: int, count: int, journal: Path, kind: str) -> dict[str, Any]:
    """Run a round in a process of its own; a crash or a hang is a failure like others."""
    order = seed, count, str(journal), kind
    try:
        with contextlib.closing(Worker()) as worker:
            return dict(worker.run(run_round, *order, limit=SECONDS_A_ROUND))
    except AssertionError as error:
        text = f"{error}\nin the program\n{journal.read_text()}"
        return {"counts": {}, "failure": text}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=2000, help="how many programs")
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    kinds = parser.add_mutually_exclusive_group()
    for kind in ("exported", "unjitted", "checked", "raising"):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind)
    parser.set_defaults(kind="routes")
    arguments = parser.parse_args()
    kind = arguments.kind
    first = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    totals: collections.Counter[str] = collections.Counter()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for i, begin in enumerate(range(0, arguments.count, ROUND)):
            seed, count = first + i, min(ROUND, arguments.count - begin)
            result = one_round(seed, count, Path(folder) / "program", kind)
            totals.update(result["counts"])
            refused = result["counts"].get("refused")
            print(
                f"seed {seed}: {count} programs,",
                *([f"{refused} of them refused,"] if refused else []),
                "FAILED" if result["failure"] else "as they should",
            )
            if result["failure"]:
                failed.append(seed)
                print(result["failure"])
                option = "" if kind == "routes" else f" --{kind}"
                print(f"again: python -m tests.differential {count} --seed {seed}{option}")
            sys.stdout.flush()
    print(", ".join(f"{name}: {number}" for name, number in sorted(totals.items())))
    print(f"failed rounds: {failed}" if failed else "all agree")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

"""Runs the calls of all kernels.

python -m tests.kernels compare [--only OP] [--seed N]
python -m tests.kernels sources
python -m tests.kernels missing
"""
# ruff: noqa: T201 - it prints its report

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Run one of the commands; return the exit status."""
    parser = argparse.ArgumentParser(description="Runs the calls of all kernels.")
    parser.add_argument("command", choices=["compare", "sources", "missing"])
    parser.add_argument("--only", default="", help="the op whose calls are run, or several: A,B")
    parser.add_argument("--module", default="", help="the module whose calls are run")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    arguments = parser.parse_args()
    from tests.kernels import catalogue, compare, sources

    calls = catalogue.calls(arguments.seed)
    numbers = compare.comparable(calls)
    if arguments.module:
        some = catalogue.numbers(arguments.module, arguments.seed)
        numbers = [number for number in numbers if number in some]
    only = arguments.only.split(",") if arguments.only else {call.op for call in calls}
    numbers = [number for number in numbers if calls[number].op in only]
    if arguments.command == "sources":
        sources.report()
    elif arguments.command == "missing":
        print(*catalogue.missing())
    elif arguments.command == "compare":
        found = compare.judge_all(numbers, arguments.seed)
        compare.report(found, calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())

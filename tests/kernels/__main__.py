"""Runs the calls of all kernels.

python -m tests.kernels compare [--only OP] [--seed N]
python -m tests.kernels raising [--only OP] [--seed N] [--mode stock]
python -m tests.kernels edges [--only OP] [--mode hostcall]
python -m tests.kernels pairs [--only OP] [--seed N] [--mode hostcall]
python -m tests.kernels sources
python -m tests.kernels missing
"""
# ruff: noqa: T201 - it prints its report

import argparse
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the calls of all kernels.")
    commands = ["compare", "edges", "pairs", "raising", "sources", "missing"]
    parser.add_argument("command", choices=commands)
    parser.add_argument("--only", default="", help="the op whose calls are run, or several: A,B")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--mode", default="stock,hostcall", help="what compiles what may raise")
    arguments = parser.parse_args()
    from tests.kernels import catalogue, compare, edges, pairs, raising, sources

    only = {*filter(None, arguments.only.split(","))}
    if arguments.command == "sources":
        sources.report()
    elif arguments.command == "missing":
        print(*catalogue.missing())
    elif arguments.command == "raising":
        raising.run(arguments.seed, only, arguments.mode.split(","))
    elif arguments.command == "edges":
        edges.run(only, arguments.mode.split(","))
    elif arguments.command == "pairs":
        pairs.run(arguments.seed, only, arguments.mode.split(","))
    else:
        compare.run(arguments.seed, only)
    return 0


if __name__ == "__main__":
    sys.exit(main())

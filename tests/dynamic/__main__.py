"""Compares values whose sizes only the run knows with plain graph mode, in all kinds of uses.

    python -m tests.dynamic [--seed N] [--skip K] [--sample K] [--source NAME] [--use NAME]
    python -m tests.dynamic CASE...

Each case is a source of such a value, a use of it, what stands beside it, and a gradient or none.
The first pass has each pair of a source and a use once, beside what the seed chooses; --passes 12
is all. --sample takes the first cases of them, and --skip goes on behind some of these. Options
with names may be given several times.
--checked compiles functions with nothing beside the use, and has hostcall check their sizes.
"""
# ruff: noqa: T201 - it prints its report

import argparse
import collections
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tests.dynamic.cases import ALONE, GRADIENTS, MODES, Case, choose
from tests.dynamic.outcomes import CLASSES, Outcome
from tests.dynamic.running import SECONDS_A_CASE, run
from tests.dynamic.sources import SOURCES
from tests.dynamic.uses import USES

Found = list[tuple[Case, Outcome]]


def main(arguments: list[str] | None = None) -> int:
    parsed = _parse(arguments)
    cases = [Case.of_id(text) for text in parsed.cases] or _chosen(parsed)
    found: Found = []
    begin = time.monotonic()
    for case, outcome in run(cases, parsed.limit, parsed.checked):
        found.append((case, outcome))
        if outcome.failed or parsed.verbose or parsed.cases:
            how = f" [{outcome.how}]" if outcome.how else ""
            print(f"{outcome.kind.upper()} {case.id} {outcome.detail}{how}", flush=True)
        if len(found) % 100 == 0:
            print(f"{len(found)} of {len(cases)}, {time.monotonic() - begin:.0f} s", flush=True)
    print(*_table(found), sep="\n")
    failed = sum(outcome.failed for _, outcome in found)
    print(f"{failed} of {len(found)} are not right" if failed else f"all {len(found)} are right")
    return int(bool(failed) or not found)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.dynamic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="the ids of single cases")
    parser.add_argument("--seed", type=int, default=None, help="of the order and of what is beside")
    parser.add_argument("--sample", type=int, default=None, help="how many cases")
    parser.add_argument("--skip", type=int, default=0, help="how many of them have run already")
    parser.add_argument("--passes", type=int, default=1, help="how often each pair comes")
    parser.add_argument("--limit", type=float, default=SECONDS_A_CASE, help="seconds for a case")
    choices = {"source": SOURCES, "use": USES, "mode": (*MODES, ALONE), "gradient": GRADIENTS}
    for name, values in choices.items():
        parser.add_argument(f"--{name}", action="append", choices=[*values], metavar="NAME",
                            help=f"one of {', '.join(values)}")  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="show the cases that are right, too")
    parser.add_argument("--checked", action="store_true", help="with nothing beside, but checked")
    return parser.parse_args(arguments)


def _chosen(parsed: argparse.Namespace) -> list[Case]:
    seed = secrets.randbelow(10**6) if parsed.seed is None else parsed.seed
    sources, uses = parsed.source or [*SOURCES], parsed.use or [*USES]
    modes = parsed.mode or ([ALONE] if parsed.checked else MODES)
    most = parsed.passes * len(sources) * len(uses)
    most = most if parsed.sample is None else min(most, parsed.sample)
    cases = choose(seed, sources, uses, modes, parsed.gradient or GRADIENTS)
    chosen = list(itertools.islice(cases, parsed.skip, most))
    print(f"seed {seed}: {len(chosen)} cases", flush=True)
    return chosen


def _table(found: Found) -> Iterable[str]:
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for case, outcome in found:
        counts[case.source][outcome.kind] += 1
    counts["all"] = sum(counts.values(), collections.Counter())
    yield f"{'source':18}" + "".join(f"{kind:>15}" for kind in CLASSES)
    for source, counter in counts.items():
        yield f"{source:18}" + "".join(f"{counter[kind]:15}" for kind in CLASSES)


if __name__ == "__main__":
    sys.exit(main())

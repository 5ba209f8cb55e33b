"""A round of random programs, in the process that `__main__.py` starts for it."""

from __future__ import annotations

import collections
import traceback
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.generator import programs
from tests.differential.program import Program
from tests.differential.running import check, keep_quiet
from tests.differential.shipping import check_shipped


def run_round(number: int, count: int, journal: str, shipped: bool = False) -> dict[str, Any]:
    """Runs `count` programs, those of the seed `number`.

    Args:
      number: the seed.
      count: how many programs.
      journal: a file for the program that runs, should the process end with it.
      shipped: whether they are exported and loaded, and else compiled by all routes.

    Returns:
      How many of the programs did what, and what is wrong with the smallest that fails.
    """
    keep_quiet()
    run_ways = check_shipped if shipped else check
    counts: collections.Counter[str] = collections.Counter()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(whole=shipped))
    def run(program: Program) -> None:
        Path(journal).write_text(repr(program))
        events = run_ways(program)
        counts.update({"programs": 1, **dict.fromkeys(events, 1)})

    try:
        run()
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        failure = "".join(traceback.format_exception_only(error))
        return {"counts": counts, "failure": failure if notes in failure else failure + notes}
    return {"counts": counts, "failure": None}

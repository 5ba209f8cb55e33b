"""A round of random programs, in the process that `__main__.py` starts for it."""

import collections
import contextlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.exporting import check_exported
from tests.differential.generator import programs
from tests.differential.outcomes import keep_quiet
from tests.differential.program import Program
from tests.differential.raising import check_raising
from tests.differential.running import check, check_sizes
from tests.differential.unjitted import Unjitted

# How the programs of each kind of rounds are drawn.
KINDS = {
    "routes": programs(),
    "exported": programs(whole=True),
    "unjitted": programs(stock=True),
    "checked": programs(whole=True, callbacks=False),
    "raising": programs(whole=True, dynamic=False, raising=True),
}


def run_round(number: int, count: int, journal: str, kind: str) -> dict[str, Any]:
    """Run `count` programs, those of the seed `number`, for one of `KINDS`.

    The file `journal` has the program that runs, should the process end with it. Returns how many
    of the programs did what, and what is wrong with the smallest that fails.
    """
    keep_quiet()
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
    @given(KINDS[kind])
    def run(program: Program) -> None:
        Path(journal).write_text(repr(program))
        counts.update({"programs": 1, **dict.fromkeys(checks[kind](program), 1)})

    with contextlib.closing(Unjitted()) as unjitted:
        checks: dict[str, Callable[[Program], set[str]]] = {
            "routes": check,
            "exported": check_exported,
            "unjitted": unjitted.check,
            "checked": check_sizes,
            "raising": check_raising,
        }
        try:
            run()
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", []))
            failure = "".join(traceback.format_exception_only(error))
            return {"counts": counts, "failure": failure if notes in failure else failure + notes}
    return {"counts": counts, "failure": None}

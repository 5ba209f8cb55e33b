"""Runs cases in processes of their own, so that one that ends its process fails alone."""

import re
import signal
from collections.abc import Iterable, Iterator
from itertools import islice

from tests.dynamic.cases import Case
from tests.dynamic.outcomes import DIED, TOO_LONG, Outcome, outcome_of_id
from tests.support.stress.processes import Worker

SECONDS_A_CASE = 90.0

# Each has compiled programs that stay in its memory.
CASES_A_PROCESS = 150

# What a process says before it ends itself.
_FATAL = re.compile(r"^F\d{4} |Check failed|what\(\)|^corrupted|^double free|^free\(\)|^malloc")

# The cases choose their routes themselves.
_PREPARATION = 'import os; os.environ.pop("HOSTCALL_ROUTE", None)'


def run(
    cases: Iterable[Case], limit: float = SECONDS_A_CASE, checked: bool = False
) -> Iterator[tuple[Case, Outcome]]:
    """Run the cases in turn, each within a limit in seconds, and yield each with its outcome."""
    left = iter(cases)
    while some := list(islice(left, CASES_A_PROCESS)):
        worker = Worker(_PREPARATION)
        for case in some:
            try:
                outcome = Outcome(**worker.run(outcome_of_id, case.id, checked, limit=limit))
            except AssertionError as error:
                if not str(error).startswith("ended with "):
                    raise
                outcome = _unfinished(str(error))
            yield case, outcome
        worker.close()


def _unfinished(text: str) -> Outcome:
    ended, _, said = text.partition(":\n")
    if "Timeout (" in said:
        return Outcome(TOO_LONG, said[said.index("Timeout (") :][:600])
    status = int(ended.removeprefix("ended with "))
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    fatal = [line for line in said.splitlines() if _FATAL.search(line)]
    return Outcome(DIED, " ".join([how, *fatal[-1:]]))

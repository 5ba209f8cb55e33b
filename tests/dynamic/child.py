"""A process that runs cases in turn for `running.py`, and writes what comes of each.

    python -m tests.dynamic.child ORDER

ORDER is JSON: the ids of the cases, the number of the open file for the results, the limit in
seconds for a case, and whether sizes are checked. When a case takes longer, the stacks are shown
and the process ends.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import json
import logging
import sys
from typing import Any

import hostcall
from tests.dynamic.cases import Case
from tests.dynamic.outcomes import outcome_of

CHECKED: dict[str, Any] = {"dynamic_sizes": "checked"}


def main(order: dict[str, Any]) -> None:
    """Run the cases."""
    faulthandler.enable()
    for name in ("tensorflow", "hostcall"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if order["checked"]:
        hostcall.configure(**CHECKED)
    with open(order["results"], "w") as file:
        for name in order["cases"]:
            faulthandler.dump_traceback_later(order["limit"], exit=True)
            outcome = outcome_of(Case.of_id(name))
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(dataclasses.asdict(outcome)), file=file, flush=True)
            gc.collect()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

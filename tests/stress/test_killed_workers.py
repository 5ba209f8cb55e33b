"""Workers of executors that are killed: nothing hangs, and no stateful call runs twice."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.stress import killed_workers

# 200 take half a minute; `make test` has fewer.
KILLS = int(os.environ.get("HOSTCALL_TEST_KILLS", "40"))


def test_workers_are_killed_at_random(tmp_path: Path) -> None:
    killed_workers.run(KILLS, tmp_path)

"""Ctrl-C ends a program at once, wherever its calls run."""

import subprocess
import sys

import pytest

from tests.support import interrupted


@pytest.mark.parametrize("name", interrupted.PROGRAMS)
def test_ctrl_c_ends_a_program_at_once(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"from tests.support import interrupted as i; i.main({name!r})"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = ended.stdout.splitlines()
    assert said[:1] == ["interrupted, at once"], ended.stderr[-2000:]
    if name != "barrier":
        assert said[1:] == ["works"], ended.stderr[-2000:]

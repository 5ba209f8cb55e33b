"""What mypy finds in programs of users: mistakes in options, and nothing in what is right."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PROGRAM = """
    import numpy as np
    import tensorflow as tf

    import hostcall

    def total(x: np.ndarray) -> np.ndarray:
        return np.sum(x, axis=-1)

    hostcall.declare(total, result=lambda x: x[:-1], route="partition", retries=2, pure=True)
    log = hostcall.callback(print, result=[], wait=False, when_full="drop_oldest")
    rows = hostcall.callback(total, result=[], vmap_method="map", kind="numpy", memory="host")
    names: list[str] = [row.callback for row in hostcall.stats()]
    declared: int = total(np.ones(3)).size
"""
MISTAKES = """
    import hostcall

    hostcall.declare(print, route="customcall")
    hostcall.callback(print, result=[], when_full="drop_eldest")
    hostcall.callback(print, result=[], vmap_method="sequental")
    hostcall.callback(print, result=[], kind="nummpy")
    hostcall.callback(print, result=[], memory="gpu")
    hostcall.callback(print, result=[], timout=3.0)
"""


@pytest.mark.full_run("mypy reads all of hostcall")
def test_mypy_finds_mistakes_in_options_and_no_others(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(textwrap.dedent(PROGRAM))
    wrong.write_text(textwrap.dedent(MISTAKES))
    found = subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}/cache", right, wrong],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    lines = [line.split(":")[1] for line in found.splitlines() if ": error:" in line]
    assert {*lines} == {"4", "5", "6", "7", "8", "9"}, found
    assert "right.py" not in found

"""The scripts of findings/, which run outside of the tests, and the table that lists them."""

import os
import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT

FINDINGS = ROOT / "findings"
SCRIPTS = sorted(FINDINGS.glob("*.sh"))


def test_the_table_has_a_row_for_each_script() -> None:
    table = (FINDINGS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[\w+\]\((\S+\.sh)\) \|", table, re.MULTILINE) == [
        script.name for script in SCRIPTS
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_its_versions_input_and_behaviour(script: Path) -> None:
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[2] == "#", "the first line alone says what happens"
    words = [line[2:].split(":")[0] for line in lines if re.match(r"# [A-Z]\w+:", line)]
    assert words == ["Versions", "Input", "Behaviour"]
    assert os.access(script, os.X_OK)

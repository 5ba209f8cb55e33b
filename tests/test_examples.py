"""Every file of examples/ runs, finds its own numbers right and prints something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py"))


def test_there_are_examples_and_the_demo_is_one() -> None:
    assert "quickstart.py" in FILES
    assert len(FILES) > 5


@pytest.mark.parametrize("file", FILES)
def test_example_runs(file: str) -> None:
    # Where TensorFlow warns of the machine it prints; only what the example prints may count.
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("HOSTCALL_DISABLE", None)
    done = subprocess.run(
        [sys.executable, EXAMPLES / file],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), f"{file} printed nothing"

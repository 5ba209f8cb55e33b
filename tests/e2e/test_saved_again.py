"""SavedModels that are loaded and trained further, saved again, frozen, and of TensorFlow 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.stress.template import Template


def run(template: Template, call: str) -> Any:
    script = "import json, hostcall; from tests.support.saved import training; "
    ended = template.run_program(f"{script}print(json.dumps(training.{call}))")
    assert ended.status == 0, ended.said
    return json.loads(ended.printed.splitlines()[-1])


@pytest.mark.parametrize("jitted", [False, True], ids=["plain", "jitted"])
def test_training_that_goes_on_elsewhere_is_the_same(
    fresh_python: Template, tmp_path: Path, jitted: bool
) -> None:
    folder = str(tmp_path)
    uninterrupted = run(fresh_python, f"begin({folder!r}, {jitted})")
    assert run(fresh_python, f"go_on({folder!r}, 'first', 'second')") == uninterrupted
    # Saved once more by a process that had loaded it, called or not, and loaded by a third one.
    assert run(fresh_python, f"go_on({folder!r}, 'second', 'third')") == uninterrupted
    assert run(fresh_python, f"go_on({folder!r}, 'second_uncalled', 'fourth')") == uninterrupted


def test_graph_of_tensorflow_1_with_a_gradient(fresh_python: Template, tmp_path: Path) -> None:
    saved = run(fresh_python, f"begin_version_1({str(tmp_path)!r})")
    assert run(fresh_python, f"go_on_version_1({str(tmp_path)!r})") == saved


def test_frozen_graph_of_a_loaded_model(fresh_python: Template, tmp_path: Path) -> None:
    run(fresh_python, f"begin({str(tmp_path)!r}, False)")
    frozen = run(fresh_python, f"freeze({str(tmp_path)!r})")
    assert run(fresh_python, f"thaw({str(tmp_path)!r})") == frozen

"""Every file of examples/ runs, finds its own numbers right and prints something."""

from pathlib import Path

import pytest

from tests.support.stress.template import Template
from tests.support.versions import marked, reads_programs_of_jax

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py"))


@pytest.mark.parametrize("file", marked(FILES, {"jax_callbacks.py": reads_programs_of_jax}))
def test_example_runs(fresh_python: Template, file: str) -> None:
    path = EXAMPLES / file
    ended = fresh_python.run_program(path.read_text(encoding="utf-8"), str(path))
    assert ended.status == 0, ended.printed + ended.said
    assert ended.printed.strip(), f"{file} printed nothing"

"""What TensorFlow compiles by itself is compiled to the same program with hostcall."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.differential.generator import programs
from tests.differential.program import Program

_COUNT = 100

# Compiles programs and calls them; those that XLA refuses are errors or not, which is another test.
_SCRIPT = """
import os, sys
import tensorflow as tf
{first}
from tests.differential.outcomes import build, call, keep_quiet
from tests.differential.program import Block, Context, Program, Statement

assert ("hostcall" in sys.modules) == {with_hostcall}
keep_quiet()
outcomes = []
for text in open({file!r}):
    program, context = eval(text), Context(jit=True)
    context.reset()
    function = build(program, context)
    outcomes.append([call(context, function, *args).error is None for args in program.inputs])
print(outcomes)
"""


def _drawn(count: int) -> list[Program]:
    """Random programs without callbacks, the same each time."""
    found: dict[str, Program] = {}

    @settings(
        max_examples=3 * count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(whole=True, stock=True, callbacks=False, dynamic=False))
    def draw(program: Program) -> None:
        found[repr(program)] = program

    draw()
    return list(found.values())[:count]


def _programs_of_xla(folder: Path) -> list[str]:
    """What XLA was given to compile, without the numbers that TensorFlow counts on."""
    texts = []
    for file in sorted(folder.glob("*before_optimizations.txt")):
        text = re.sub(r"metadata=\{[^}]*\}", "", file.read_text())
        texts.append(re.sub(r"(?<=__inference_)\w+|_\d+(?=[\[_]|$)|\.\d+", "", text))
    return sorted(texts)


@pytest.mark.custom_call  # what is partitioned is not the program that it was
def test_random_programs_are_the_same_with_hostcall(
    run_python: Callable[..., str], tmp_path: Path
) -> None:
    drawn = _drawn(_COUNT)
    assert len(drawn) == _COUNT
    file = tmp_path / "programs"
    file.write_text("\n".join(map(repr, drawn)))
    compiled, outcomes = {}, {}
    for first in ("", "import hostcall"):
        folder = tmp_path / f"dump{bool(first)}"
        script = _SCRIPT.format(first=first, file=str(file), with_hostcall=bool(first))
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
        outcomes[first] = eval(run_python(script, XLA_FLAGS=flags))
        compiled[first] = _programs_of_xla(folder)
    kept = [stock for stock in outcomes[""] if all(stock)]
    assert len(kept) > _COUNT // 2
    for stock, ours in zip(outcomes[""], outcomes["import hostcall"], strict=True):
        assert all(one <= other for one, other in zip(stock, ours, strict=True))
    assert len(compiled[""]) > _COUNT // 2
    # What stock refuses adds clusters of ours.
    remaining = list(compiled["import hostcall"])
    for program in compiled[""]:
        assert program in remaining
        remaining.remove(program)

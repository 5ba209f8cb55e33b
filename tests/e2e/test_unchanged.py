"""Tests that programs work with hostcall as without it, compared in processes of their own."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.differential.generator import programs
from tests.differential.program import Program
from tests.support.stress.template import Template

SCRIPT = Path(__file__).parents[1] / "support" / "e2e" / "unchanged_run.py"


AUTO_CLUSTERING = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"

# Environment variables.
MODES: dict[str, dict[str, str]] = {
    "disabled": {"HOSTCALL_DISABLE": "1"},
    "switched off again": {"SWITCH": "disable enable disable"},
    "enabled": {},
    "auto-clustering by flag": {"TF_XLA_FLAGS": AUTO_CLUSTERING},
    "auto-clustering by option": {"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit", "SET_JIT": "1"},
}
# Programs, environment variables with hostcall and without it, and those with it alone.
CASES = [
    *(pytest.param("unchanged_programs", {}, how, id=mode) for mode, how in MODES.items()),
    *(
        pytest.param(
            *(file, both, {}),
            marks=pytest.mark.full_run("takes long: processes for each file"),
            id=f"{file} {both}",
        )
        for file, both in (
            ("unchanged_results", {}),
            ("unchanged_v1_programs", {"V1": "disable_eager_execution"}),
            ("unchanged_v1_programs", {"V1": "disable_v2_behavior"}),
        )
    ),
]


@pytest.fixture(scope="module")
def run(fresh_python: Template) -> Any:
    """Runs the programs of a file in a process with these variables; returns their outcomes."""

    @functools.cache
    def run(file: str, variables: frozenset[tuple[str, str]]) -> Any:
        how = dict(variables)
        ended = fresh_python.run_program(SCRIPT.read_text(), str(SCRIPT), PROGRAMS=file, **how)
        assert ended.status == 0, f"{how}:\n{ended.said}"
        return json.loads(ended.printed.splitlines()[-1])

    return lambda file, **variables: run(file, frozenset(variables.items()))


@pytest.mark.parametrize(("file", "both", "ours"), CASES)
def test_same_as_stock(run: Any, file: str, both: dict[str, str], ours: dict[str, str]) -> None:
    """Of programs, of all values that functions return, and of processes of TensorFlow 1."""
    stock = run(file, WITH_HOSTCALL="0", **both)
    assert {name for name, outcome in stock.items() if "raised" in outcome} == set()
    assert run(file, WITH_HOSTCALL="1", **both, **ours) == stock


_CLUSTERED = """
import hostcall, numpy as np, tensorflow as tf

def script_op(x):
    return tf.numpy_function(lambda x: x[x > 1], [x], tf.float32)

@tf.function
def nested(x):
    return script_op(x * 3.0 + 1.0) * 2.0 + 1.0

with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.compat.v1.placeholder(tf.float32, [2])
    y = script_op(x * 2.0 - 1.0) * 2.0 + 1.0 + tf.reduce_sum(nested(x) * 2.0 + 1.0)
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    print(session.run(y, {x: [1.0, 2.0]}, options, metadata).tolist())
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    print(sorted({node.op for node in nodes if node.op in ("PyFunc", "_XlaRun", "XlaLaunch")}))
"""


def test_auto_clustering_takes_the_neighbours_of_a_script_op_and_not_it(run_python: Any) -> None:
    output = run_python(_CLUSTERED, TF_XLA_FLAGS=AUTO_CLUSTERING)
    # x * 2 - 1 is [1, 3]; elements larger than 1 become 7. Inside: 4 and 7 become 9 + 15,
    # times 2 and one more for each.
    assert output.splitlines() == ["[57.0]", "['PyFunc', '_XlaRun']"]


_COUNT = 20

# Compiles programs and calls them; another test is about the errors of those that XLA refuses.
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
    """Return the programs that XLA was given to compile, without TensorFlow's running numbers."""
    texts = []
    for file in sorted(folder.glob("*before_optimizations.txt")):
        text = re.sub(r"metadata=\{[^}]*\}", "", file.read_text())
        texts.append(re.sub(r"(?<=__inference_)\w+|_\d+(?=[\[_]|$)|\.\d+", "", text))
    return sorted(texts)


@pytest.mark.full_run("takes long: two processes of many programs")
@pytest.mark.custom_call  # a partitioned program differs from that of stock
def test_random_programs_are_the_same_with_hostcall(
    run_python: Callable[..., str], tmp_path: Path
) -> None:
    """Check what functions without callbacks are compiled to."""
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
    # Programs that stock refuses add clusters of ours.
    remaining = list(compiled["import hostcall"])
    for program in compiled[""]:
        assert program in remaining
        remaining.remove(program)

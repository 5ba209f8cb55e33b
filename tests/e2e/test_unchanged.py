"""What works without hostcall works with it, and the same: against stock in other processes."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.stress.template import Template

SCRIPT = Path(__file__).parents[1] / "support" / "e2e" / "unchanged_run.py"
FILES = ("unchanged_programs", "unchanged_datasets")
PROGRAMS = [
    name
    for file in FILES
    for name in runpy.run_path(str(SCRIPT.with_name(f"{file}.py")))["PROGRAMS"]
]

AUTO_CLUSTERING = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"

# Environment variables.
MODES: dict[str, dict[str, str]] = {
    "stock": {"WITH_HOSTCALL": "0"},
    "disabled": {"WITH_HOSTCALL": "1", "HOSTCALL_DISABLE": "1"},
    "enabled": {"WITH_HOSTCALL": "1"},
    "auto-clustering by flag": {"WITH_HOSTCALL": "1", "TF_XLA_FLAGS": AUTO_CLUSTERING},
    "auto-clustering by option": {
        "WITH_HOSTCALL": "1",
        "TF_XLA_FLAGS": "--tf_xla_cpu_global_jit",
        "SET_JIT": "1",
    },
}


@pytest.fixture(scope="module")
def outcomes(
    fresh_python: Template, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """For each mode the outcome of each program."""
    results = {}
    for mode, variables in MODES.items():
        scratch = str(tmp_path_factory.mktemp("models"))
        ended = fresh_python.run_program(
            SCRIPT.read_text(),
            str(SCRIPT),
            **variables,
            SCRATCH=scratch,
            PROGRAMS=" ".join(FILES),
        )
        assert ended.status == 0, f"{mode}:\n{ended.said}"
        results[mode] = json.loads(ended.printed.splitlines()[-1])
    return results


@pytest.mark.parametrize("name", PROGRAMS)
def test_stock_runs_the_program(outcomes: Any, name: str) -> None:
    assert not isinstance(outcomes["stock"][name], dict), outcomes["stock"][name]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "stock"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_stock(outcomes: Any, name: str, mode: str) -> None:
    assert outcomes[mode][name] == outcomes["stock"][name]


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
    # x * 2 - 1 is [1, 3]; what is larger than 1 of it becomes 7. Inside: 4 and 7 become 9 + 15,
    # times 2 and one more for each.
    assert output.splitlines() == ["[57.0]", "['PyFunc', '_XlaRun']"]

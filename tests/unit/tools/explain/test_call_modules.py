"""Programs of StableHLO in TensorFlow's functions: what is said of them, and who keeps them."""

import gc
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from tests.support.exported import exported
from tests.support.exported.exported import F3, X
from tests.support.helpers import jitted, plain
from tests.support.versions import reads_programs_of_jax


def scaled(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda v: None, x, ordered=True)
    return hostcall.jax.call(lambda v: 2 * v, x, x, name="twice")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    hostcall.export(exported.straight, F3).save(tmp_path)
    hostcall.allow("tests.support.exported")
    return tmp_path


@reads_programs_of_jax
@pytest.mark.parametrize(("mode", "route"), [(plain, "plain"), (jitted, "custom_call")])
def test_they_are_explained(folder: Path, mode: Any, route: str) -> None:
    loaded, converted = hostcall.load(folder), hostcall.jax.to_tf(scaled)

    def function(x: tf.Tensor) -> tf.Tensor:
        y = loaded(x)
        return converted(y)

    first, second = hostcall.explain(mode(function), F3).script_ops
    assert (first.kind, first.route) == ("hostcall.load", route)
    assert first.callback == "straight, which calls tests.support.exported.user_code:sine"
    assert second.kind == "hostcall.jax.to_tf"
    assert second.callback == "scaled, which calls jax.debug.callback, twice"
    assert second.defined_at.startswith(f"{__file__}:")
    assert second.stateful
    assert second.follows is not None
    for op in (first, second):
        assert op.location.startswith(f"{__file__}:")
        assert [value.shape for value in (*op.operands, *op.results)] == ["(3,)", "(3,)"]


@reads_programs_of_jax
def test_copies_of_graphs_keep_them(folder: Path) -> None:
    def copied() -> tuple[tf.Graph, list[str], Any]:
        loaded, converted = hostcall.load(folder), hostcall.jax.to_tf(scaled)
        traced = plain(lambda x: converted(loaded(x))).get_concrete_function(F3)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(traced.graph.as_graph_def(), name="")
        return graph, [traced.inputs[0].name, traced.outputs[0].name], traced(tf.constant(X))

    graph, (argument, result), expected = copied()
    gc.collect()
    with tf.compat.v1.Session(graph=graph) as session:
        np.testing.assert_array_equal(session.run(result, {argument: X}), expected)

"""The kernels of XLA: which of them are wrong, and which make sizes that are only bounded.

What runs without hostcall runs in a process of its own.
"""

import contextlib
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from hostcall._compiler import ops, wrong_kernels
from hostcall._compiler.sizes import sources
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import NodeDef
from tests.kernels import catalogue, checks, difference, known, registry, running
from tests.kernels.call import Call
from tests.support.stress.processes import Worker
from tests.support.versions import of_the_tables

pytestmark = pytest.mark.tensorflow("2.21", "the tables are of this version")

ROOT = Path(__file__).parents[2]

# The numbers of the calls are drawn with it.
SEED = 2021
SAMPLE = 150
SECONDS = 300.0
KNOWN = [*known.cases(), *known.of_graph()]


@pytest.fixture(scope="module")
def stock() -> Iterator[Worker]:
    """A process without hostcall, which makes the catalogue once for all tests."""
    with contextlib.closing(Worker()) as worker:
        yield worker


@of_the_tables
def test_each_entry_of_the_table_still_differs(stock: Worker) -> None:
    found: list[bool] = stock.run(checks.known_differ, limit=SECONDS)
    agree = [call.text() for call, differs in zip(known.cases(), found, strict=True) if not differs]
    assert not agree, "TensorFlow has mended them: take them out of the table"


def test_each_entry_of_the_table_has_a_call_that_it_applies_to() -> None:
    for call in known.cases():
        assert _differs(call), call.text()
    assert {call.op for call in known.cases()} == {
        name for name, op in ops.OPS.items() if any(not d.of_graph for d in op.differences)
    }


@of_the_tables
def test_each_value_of_graph_mode_still_differs(stock: Worker) -> None:
    calls = known.of_graph()
    for call in calls:
        assert _differs(call), call.text()
    found: list[bool] = stock.run(checks.known_differ, True, limit=SECONDS)
    agree = [call.text() for call, differs in zip(calls, found, strict=True) if not differs]
    assert not agree, "TensorFlow has mended them: take them out of the table"


@pytest.mark.cpu("programs for accelerators have XLA's kernels")
@pytest.mark.parametrize("op", sorted({call.op for call in KNOWN}))
def test_programs_that_hostcall_takes_have_the_values_of_the_kernels(op: str) -> None:
    calls = [call for call in KNOWN if call.op == op]
    for call, results in zip(calls, running.beside_python(calls), strict=True):
        found = difference.compare(call, running.on_cpu(call), results)
        # XLA has another sign of zero here and there, and the last bits of some.
        serious = [
            one for one in found if one.what not in (difference.ZERO_SIGN, difference.DENORMAL)
        ]
        assert not serious, call.text()


def test_the_page_lists_each_entry_of_the_table() -> None:
    page = (ROOT / "docs" / "sharp-bits.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Kernels of XLA's that are wrong")
    listed = {*re.findall(r"`(\w+)`\*?", section.partition("\n## ")[0])}
    starred = {*re.findall(r"`(\w+)`\*", section.partition("\n## ")[0])}
    assert listed >= ops.DIFFERENT
    written = {name for name, op in ops.OPS.items() if any(d.replacement for d in op.differences)}
    assert starred == written


def test_calls_outside_of_the_table_agree(stock: Worker) -> None:
    calls = catalogue.calls()
    numbers = random.Random(SEED).sample(checks.plain(calls), 3 * SAMPLE)
    right = (n for n in numbers if not _differs(calls[n]))
    drawn = [(number, calls[number].text()) for number in itertools.islice(right, SAMPLE)]
    assert len(drawn) == SAMPLE
    wrong: list[str] = stock.run(checks.wrong, drawn, limit=SECONDS)
    assert not wrong


def test_each_kernel_that_makes_a_bounded_size_is_a_known_source(stock: Worker) -> None:
    found: dict[str, Any] = stock.run(checks.bounded, limit=SECONDS)
    # Conditionals make one where their branches differ: see sources.py.
    assert {*found["always"]} == sources.ALWAYS | op_kinds.BRANCH_OPS
    assert {*found["unknown"]} == {*sources.BY_OPERANDS}
    for op, inputs in found["unknown"].items():
        assert {*inputs} <= {*sources.BY_OPERANDS[op]}, op


@of_the_tables
def test_each_op_has_a_call_or_a_reason_for_none(stock: Worker) -> None:
    missing: list[str] = stock.run(catalogue.missing, limit=SECONDS)
    assert not missing
    assert {*catalogue.LEFT_OUT} <= {*registry.ops()}


def _differs(call: Call) -> bool:
    """Return whether the table says that a node of a call differs."""
    nodes = _nodes(call)
    by_name = {node.name: node for node in nodes}
    return any(wrong_kernels.difference(node, by_name) is not None for node in nodes)


def _nodes(call: Call) -> list[NodeDef]:
    """The nodes that a call makes, those of its functions among them; none if it makes none."""
    try:
        specs = [tf.TensorSpec(array.shape, array.dtype) for array in call.flat()]
        traced = tf.function(lambda *tensors: call.run([*tensors]), autograph=False)
        graph = traced.get_concrete_function(*specs).graph.as_graph_def()
    except Exception:
        return []
    functions = graph.library.function
    return [*graph.node, *(node for function in functions for node in function.node_def)]

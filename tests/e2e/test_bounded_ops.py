"""Each op that bounded sizes may reach in one program is right there: the table proves itself."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.bounded import flow
from hostcall._compiler.bounded.flow import RULES
from tests.support.e2e.bounded_proofs import PROOFS, Program

pytestmark = pytest.mark.custom_call("between clusters no size is bounded")

BOUND = 5
SIZES = (BOUND, 0, 1, 3)

# What elements are beyond the true size, after the addition in `_bounded`.
PADDING = (9.0, -9.0)

# Of what programs take: -1 stands for the size, -2 for as much of it as 4.
SHAPES = {"m": [-1, 3], "c": [3, -1], "s": [-1, -2]}


def _bounded(shape: list[int], n: tf.Tensor, padding: tf.Tensor) -> tf.Tensor:
    """Numbers between 0 and 1, no two the same."""

    def numbers(n: Any, padding: Any) -> np.ndarray:
        sizes = [{-1: int(n), -2: min(4, int(n))}.get(size, size) for size in shape]
        count = int(np.prod(sizes))
        order = np.random.default_rng(count).permutation(32)[:count]
        return ((order * 2 + 1) / 64 - padding).reshape(sizes).astype(np.float32)

    bounds = [{-1: BOUND, -2: 4}.get(size, size) for size in shape]
    dims = [dim for dim, size in enumerate(shape) if size < 0]
    spec = hostcall.BoundedSpec(bounds, tf.float32, dims)
    return tf.numpy_function(numbers, [n, padding], spec) + padding


def _inputs(names: set[str], n: tf.Tensor, padding: tf.Tensor) -> dict[str, tf.Tensor]:
    """What a program takes, by the names of its parameters; see bounded_proofs.py."""
    needed = names & SHAPES.keys() | ({"m"} if names - SHAPES.keys() else set())
    made = {name: _bounded(SHAPES[name], n, padding) for name in sorted(needed)}
    if "m" in made:
        u, v = made["m"][:, 0], made["m"][:, 1]
        made |= {"u": u, "v": v, "b": u > 0.5, "i": tf.cast(u * 4.0, tf.int32)}
        made["z"] = tf.complex(u, v)
    return made


def _with_gradients(programs: Sequence[Program]) -> Program:
    """Programs, and their gradients, as one of a size and of what lies beyond it."""
    names = [[*inspect.signature(program).parameters] for program in programs]

    def run(n: tf.Tensor, padding: tf.Tensor) -> Any:
        inputs = _inputs({name for some in names for name in some}, n, padding)
        taken = [[inputs[name] for name in some] for some in names]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = [tf.nest.flatten(f(*args)) for f, args in zip(programs, taken, strict=True)]
            numbers = [y for some in results for y in some if y.dtype == tf.float32]
            total = tf.add_n([tf.reduce_sum(tf.sin(y * 1.25)) for y in numbers] + [0.0])
        gradients = tape.gradient(total, [x for args in taken for x in args])
        return results, [tf.convert_to_tensor(g) for g in gradients if g is not None]

    return run


def _assert_right(actual: Any, expected: Any) -> None:
    for size, padding in itertools.product(SIZES, PADDING):
        args = (tf.constant(size), tf.constant(padding))
        pairs = zip(*map(tf.nest.flatten, (actual(*args), expected(*args))), strict=True)
        for one, other in pairs:
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


class _Noting(dict[str, Any]):
    """A table that notes what it has been asked for."""

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__(table)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def _groups(most: int) -> list[list[str]]:
    """The ops in the table, a few together: a program less is a second less."""
    groups: list[list[str]] = [[]]
    for op, proofs in PROOFS.items():
        if groups[-1] and sum(len(PROOFS[other]) for other in groups[-1]) + len(proofs) > most:
            groups.append([])
        groups[-1].append(op)
    return groups


def test_each_op_in_the_table_has_a_proof() -> None:
    assert {*PROOFS} == {*RULES}


@pytest.mark.parametrize("ops", _groups(10), ids=" ".join)
def test_ops_are_right_for_each_size_and_stay_in_one_program(
    ops: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = _Noting(RULES)
    monkeypatch.setattr(flow, "RULES", noting)
    _assert_right_in_one_program([proof for op in ops for proof in PROOFS[op]])
    assert {*ops} <= noting.asked


def test_ones_like_something_of_bounded_size_are_as_many() -> None:
    nans = lambda u: tf.ones_like(u / tf.zeros_like(u))  # noqa: E731
    _assert_right_in_one_program(
        [
            lambda u: tf.reduce_sum(tf.ones_like(u)) * tf.reduce_sum(u),
            lambda m: tf.ones_like(m) * m,
            lambda i: tf.ones_like(i),
            lambda b: tf.ones_like(b),
            lambda z: tf.ones_like(z),
            nans,
        ]
    )


def _assert_right_in_one_program(programs: Sequence[Program]) -> None:
    program = _with_gradients(programs)
    arguments = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)]
    compiled = tf.function(program, jit_compile=True, autograph=False)
    concrete = compiled.get_concrete_function(*arguments)
    explained = hostcall.explain(concrete)
    assert [found.reason for found in explained.script_ops if found.route == "partition"] == []
    assert [function.mode for function in explained.functions] == ["compiled"]
    _assert_right(concrete, tf.function(program, autograph=False))

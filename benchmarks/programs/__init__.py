"""Real programs: a warm step and a first call, beside graph mode and what one had before."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.programs import detection, environments, science, sizes, text, training
from benchmarks.programs.program import Program
from benchmarks.report import Goal, Row, alone, at_most, beside
from benchmarks.steps import quiet, switched_off
from benchmarks.timing import FULL, Effort, Samples, measure, measure_once_a_round

TITLE = "Real programs, compiled by hostcall"

MODULES = (detection, text, training, environments, science, sizes)
GRAPH, COMPILED, BY_HAND, STOCK = "graph mode", "hostcall", "clusters by hand", "stock jit"
BOUND = "hostcall.bind"
FIRST = "first call by"


def programs() -> list[Program]:
    return [program for module in MODULES for program in module.programs()]


def agree(found: Any, wanted: Any) -> bool:
    """Return whether two structures of tensors hold the same, up to rounding."""
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True)
    return all(np.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in pairs)


def stock(program: Program) -> Callable[[], Any] | None:
    """Return the step compiled without hostcall; None if that is an error.

    It is one for strings, which TensorFlow 2.21 may answer by ending the process.
    """
    if any(tensor.dtype == tf.string for tensor in program.arguments):
        return None
    with switched_off():
        step = program.compiled()
        try:
            step()
        except (tf.errors.OpError, ValueError, TypeError):
            return None
    return step


def rows_of(program: Program, effort: Effort) -> list[Row]:
    """Return the rows of the warm step, and those of the first call of a new function."""
    ways = {
        GRAPH: program.in_graph,
        COMPILED: program.compiled,
        BOUND: program.bound,
        BY_HAND: program.by_hand,
    }
    steps = {way: make() for way, make in ways.items()}
    found = {way: step() for way, step in steps.items()}
    if wrong := [way for way, result in found.items() if not agree(result, found[GRAPH])]:
        raise ValueError(f"{program.name} does not come to the same by {wrong}")
    firsts = {way: partial(first_call, ways[way]) for way in (GRAPH, COMPILED)}
    if (without := stock(program)) is not None:
        steps[STOCK] = without
        firsts[STOCK] = partial(first_call_of_stock, program)
    warm = {f"{program.name}, {way}": step for way, step in steps.items()}
    samples = measure(warm, effort, {f"{program.name}, {STOCK}": switched_off})
    cold = {f"{program.name}, {FIRST} {way}": make for way, make in firsts.items()}
    samples |= measure_once_a_round(cold, effort.times(0.15))
    return [
        *_beside_graph_mode(samples, [*warm], at_most(1.05)),
        *_beside_graph_mode(samples, [*cold]),
    ]


def _beside_graph_mode(
    samples: dict[str, Samples], names: list[str], goal: Goal | None = None
) -> list[Row]:
    """Return a row for each name, the first of which is graph mode's and the second hostcall's."""
    graph, ours, *_ = names
    others = [beside(samples, name, graph, goal if name == ours else None) for name in names[1:]]
    return [alone(graph, samples[graph]), *others]


def first_call(make: Callable[[], Callable[[], Any]]) -> float:
    """Return the seconds of the first call of a new step, which traces and compiles it."""
    step = make()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def first_call_of_stock(program: Program) -> float:
    with switched_off():
        return first_call(program.compiled)


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"), quiet_tensorflow():
        some = programs()[: effort.of(len(programs()))]
        return [row for program in some for row in rows_of(program, effort)]


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

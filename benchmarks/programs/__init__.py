"""Real programs: a warm step compiled by hostcall, beside graph mode and what one had before."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.programs import detection, environments, science, sizes, text, training
from benchmarks.programs.program import Program
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import quiet, switched_off
from benchmarks.timing import FULL, Effort, measure

TITLE = "Real programs, compiled by hostcall"

MODULES = (detection, text, training, environments, science, sizes)
GRAPH, COMPILED, BY_HAND, STOCK = "graph mode", "hostcall", "clusters by hand", "stock jit"


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
    steps = {GRAPH: program.in_graph(), COMPILED: program.compiled(), BY_HAND: program.by_hand()}
    if (without := stock(program)) is not None:
        steps[STOCK] = without
    named = {f"{program.name}, {way}": step for way, step in steps.items()}
    samples = measure(named, effort, {f"{program.name}, {STOCK}": switched_off})
    first = f"{program.name}, {GRAPH}"
    goals = {f"{program.name}, {COMPILED}": at_most(1.05)}
    others = [beside(samples, name, first, goals.get(name)) for name in named if name != first]
    return [alone(first, samples[first]), *others]


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"), _quiet_tensorflow():
        some = programs()[: effort.of(len(programs()))]
        return [row for program in some for row in rows_of(program, effort)]


@contextlib.contextmanager
def _quiet_tensorflow() -> Iterator[None]:
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

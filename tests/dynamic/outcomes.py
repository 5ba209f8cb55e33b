"""The outcomes of cases: whether the compiled function does the same as plain graph mode."""

import dataclasses
import gc
import logging
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.dynamic.cases import OUTSIDE, Case, build
from tests.dynamic.sources import arguments

# From the best to the worst. A case whose calls differ has the worst of their kinds.
BOTH_REFUSE, GRAPH_REFUSES, RIGHT = "both refuse", "graph refuses", "right"
GRAPH_WRONG = "graph is wrong"
WRONG, ERROR, TOO_LONG, DIED = "wrong", "error", "too long", "died"
CLASSES = (BOTH_REFUSE, GRAPH_REFUSES, RIGHT, GRAPH_WRONG, WRONG, ERROR, TOO_LONG, DIED)
FAILED = (WRONG, ERROR, TOO_LONG, DIED)

# XLA computes some ops less exactly, such as singular values. Wrong results are far off.
_TOLERANCES = {"rtol": 1e-3, "atol": 1e-4}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
      kind: one of `CLASSES`: "both refuse" if plain graph mode and the compiled function raise
        errors, "graph refuses" if only the former does, as XLA checks less; "graph is wrong" if the
        compiled function gives the results of eager mode, and graph mode, whose constant folding
        takes the size of a loop's variable for that of its initial value, gives others; "died" if
        the process has ended.
      detail: what is wrong.
      how: how it is compiled, where something is wrong.
    """

    kind: str
    detail: str = ""
    how: str = ""

    @property
    def failed(self) -> bool:
        return self.kind in FAILED


def outcome_of_id(text: str, checked: bool) -> dict[str, str]:
    """Return the outcome of a case as JSON, in a process for cases alone."""
    logging.getLogger("hostcall").setLevel(logging.ERROR)
    hostcall.configure(dynamic_sizes="checked" if checked else "stock")
    gc.collect()
    return dataclasses.asdict(outcome_of(Case.of_id(text)))


def outcome_of(case: Case) -> Outcome:
    plain, compiled = build(case, jit=False), build(case, jit=True)
    worst = Outcome(BOTH_REFUSE)
    for data in case.data:
        expected, actual = _call(plain, data), _call(compiled, data)
        found = _compare(data, actual, expected)
        if found.kind == WRONG and _compare(data, actual, _eagerly(plain, data)).kind == RIGHT:
            found = Outcome(GRAPH_WRONG, found.detail)
        worst = max(worst, found, key=lambda outcome: CLASSES.index(outcome.kind))
        if found.kind == ERROR or (found.kind == BOTH_REFUSE and _is_of_tracing(expected)):
            break
    how = _how(case, compiled) if worst.failed else ""
    return dataclasses.replace(worst, how=how)


def _call(function: Any, data: str) -> list[np.ndarray] | Exception:
    try:
        return [np.asarray(y) for y in tf.nest.flatten(function(*arguments(data)))]
    except Exception as error:
        return error


def _eagerly(function: Any, data: str) -> list[np.ndarray] | Exception:
    tf.config.run_functions_eagerly(True)
    try:
        return _call(function, data)
    finally:
        tf.config.run_functions_eagerly(False)


def _is_of_tracing(result: Any) -> bool:
    """Tell whether each call raises the error again, since there is no graph."""
    return isinstance(result, Exception) and not isinstance(result, tf.errors.OpError)


def _compare(data: str, actual: Any, expected: Any) -> Outcome:
    if isinstance(expected, Exception):
        return Outcome(BOTH_REFUSE if isinstance(actual, Exception) else GRAPH_REFUSES)
    if isinstance(actual, Exception):
        text = " ".join(str(actual).split())[:600]
        return Outcome(ERROR, f"{data}: {type(actual).__name__}: {text}")
    pairs = zip(actual, expected, strict=True)
    for i, (one, other) in enumerate(pairs):
        if not _alike(one, other):
            return Outcome(WRONG, f"{data}: {i} is {_described(one)} for {_described(other)}")
    return Outcome(RIGHT)


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.dtype.kind not in "fc":
        return bool(np.all(one == other))
    return np.allclose(one, other, **_TOLERANCES, equal_nan=True)


def _described(array: np.ndarray) -> str:
    values = array.ravel()[:8].tolist()
    return f"{array.dtype}{list(array.shape)} {values}"


def _how(case: Case, compiled: Any) -> str:
    """Tell whether it is one program, unless a tape outside makes further ones."""
    if case.gradient == OUTSIDE:
        return ""
    try:
        return str(hostcall.explain(compiled, *arguments("some")).headline)
    except Exception as error:
        return f"cannot be explained: {type(error).__name__}"

"""Calls that begin early, with call frames made by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.native.frames import INT64, Buffer, Outcome, Target, attributes, call, runtime

START, GATE, DONE = (runtime.handlers()[f"hostcall_{name}"] for name in ("start", "gate", "done"))
HANDLE = Buffer(INT64, (), bytes(8))


def described(results: Sequence[Buffer]) -> list[int]:
    """The attribute `results` of a call that begins early."""
    return [n for result in results for n in (result.code, len(result.dims), *result.dims)]


def start(
    target: Target | int,
    operands: Sequence[Buffer],
    results: Sequence[Buffer],
    foreign: bool = False,
    **pairs: Sequence[int],
) -> Outcome:
    said = attributes(target, results=described(results), **pairs)
    return call(target, operands, [HANDLE], entry=START, said=said, foreign=foreign)


def take(handle: Any, results: Sequence[Buffer], foreign: bool = False) -> Outcome:
    operands = [Buffer.of(np.int64(handle)), Buffer.of(np.int64(0))]
    return call(0, operands, results, entry=DONE, said=[], foreign=foreign)


def start_and_take(
    target: Target | int,
    operands: Sequence[Buffer],
    results: Sequence[Buffer],
    foreign: bool = False,
    **pairs: Sequence[int],
) -> Outcome:
    """Both, as a program does it; how the call ended."""
    begun = start(target, operands, results, foreign, **pairs)
    if begun.code == 0:
        return take(begun.array(), results, foreign)
    return Outcome(begun.code, begun.message, [], list(results))

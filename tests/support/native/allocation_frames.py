"""Run by test_allocations.py, with the library that counts preloaded: what calls allocate.

Prints, for each case, how often the runtime asked the heap for memory in each of a few calls, when
calls like it had been made before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.native.frames import Buffer, Outcome, Target, call, native, runtime

WARM, COUNTED = 20, 5
X = np.arange(6, dtype=np.float32).reshape(2, 3)
LARGE = np.arange(5000, dtype=np.float32)
LENT = {"borrows": True, "takes_out": True, "shares_memory": True}


def calls(
    function: Callable[..., Any],
    operands: Sequence[Any],
    results: Sequence[Any],
    convention: Mapping[str, bool] | None = None,
    **pairs: Any,
) -> Callable[[], Outcome]:
    """A call of the function, again and again; `results` are arrays like those that it returns."""
    target = Target(function, convention=convention or {})
    given = [Buffer.of(array) for array in operands]
    taken = [Buffer.result(np.shape(array), np.asarray(array).dtype) for array in results]
    return lambda: call(target, given, taken, token=True, **pairs)


CASES: dict[str, Callable[[], Outcome]] = {
    "an array": calls(lambda x: x, [X], [X]),
    "no arguments and no results": calls(lambda: None, [], []),
    "an array as a list of one": calls(lambda x: [x], [X], [X]),
    "two results": calls(lambda x: [x, x], [X], [X, X]),
    "two results as a tuple": calls(lambda x: (x, x), [X], [X, X]),
    "20 arguments and results": calls(lambda *xs: list(xs), [X] * 20, [X] * 20),
    "a scalar": calls(lambda x: x, [np.float32(1)], [np.float32(1)]),
    "a number of Python's": calls(lambda x: 1.0, [X], [1.0]),
    "a large array": calls(lambda x: x, [LARGE], [LARGE]),
    "an array that is lent, and one written": calls(lambda x, out: None, [LARGE], [LARGE], LENT),
    "small arrays of a function that borrows": calls(lambda x, out: None, [X], [X], LENT),
    "a transposed result": calls(lambda x: x.T, [X], [X.T]),
}

# Of which it is known that they do allocate: whoever counts sees them.
OTHERS: dict[str, Callable[[], Outcome]] = {
    "an argument of bounded size": calls(
        lambda x: np.float32(x.sum()),
        [X, np.int32(1)],
        [np.float32(0)],
        dynamic_operands=[0, 0],
    ),
    "an error": calls(lambda: 1 / 0, [], []),
}


def counted(run: Callable[[], Outcome], code: int) -> list[int]:
    for _ in range(WARM):
        outcome = run()
        assert (outcome.code == 0) == (code == 0), outcome.message
    counts = []
    for _ in range(COUNTED):
        run()
        counts.append(native.allocations())
    return counts


def main() -> None:
    runtime.install(native.host_api())
    found = {name: counted(run, 0) for name, run in CASES.items()}
    found |= {name: counted(run, name == "an error") for name, run in OTHERS.items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

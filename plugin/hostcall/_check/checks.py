"""The checks, in the order in which they are made."""

from __future__ import annotations

import dataclasses

from hostcall._check import (
    gradients,
    memory,
    odd_inputs,
    processes,
    programs,
    purity,
    results,
    threads,
    vectorization,
)
from hostcall._check.trial import Check


@dataclasses.dataclass(frozen=True)
class Entry:
    """One check.

    Attributes:
      name: by which users leave it out, and findings are told apart.
      run: makes it.
      needs: the checks that must have found nothing before.
      compares: whether it compares results of calls that are made at different times.
    """

    name: str
    run: Check
    needs: tuple[str, ...] = ()
    compares: bool = False


_RESULTS = ("call", "count", "dtypes", "shapes")
# Whatever goes wrong with these goes wrong in all that comes after.
_ALL = (*_RESULTS, "arguments", "borrowed", "out")
_PROGRAM = (*_ALL, "aliasing", "pickling")

CHECKS = (
    Entry("call", results.call),
    Entry("count", results.count, ("call",)),
    Entry("dtypes", results.dtypes, ("call", "count")),
    Entry("shapes", results.shapes, ("call", "count", "dtypes")),
    Entry("arguments", purity.arguments, ("call",)),
    Entry("borrowed", memory.borrowed, ("call",)),
    Entry("out", memory.out, _RESULTS),
    Entry("purity", purity.purity, _ALL),
    Entry("aliasing", memory.aliasing, (*_ALL, "purity")),
    Entry("empty", odd_inputs.empty, _ALL),
    Entry("zero_d", odd_inputs.zero_d, _ALL),
    Entry("huge", odd_inputs.huge, _ALL),
    Entry("layout", odd_inputs.layout, _ALL, compares=True),
    Entry("vectorization", vectorization.vectorization, (*_ALL, "aliasing"), compares=True),
    Entry("threads", threads.threads, (*_ALL, "aliasing"), compares=True),
    Entry("gradient", gradients.gradient, (*_ALL, "aliasing"), compares=True),
    Entry("pickling", processes.pickling, ("call",)),
    Entry("name", processes.name, ("call", "pickling")),
    Entry("compiled", programs.compiled, _PROGRAM, compares=True),
    Entry(
        "partitioned",
        programs.partitioned,
        (*_ALL, "aliasing", "pickling", "compiled"),
        compares=True,
    ),
    Entry("jax", programs.in_jax, (*_PROGRAM, "compiled"), compares=True),
)

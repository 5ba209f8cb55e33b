"""The lines of code that findings advise, and values and errors as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from hostcall._functions.specs import parameters
from hostcall._ops.structures import BareText
from hostcall._tools.check.subject import Subject

_TAKEN = frozenset({"tf", "hostcall", "np"})  # names that the advised lines use themselves

# The shapes of all arguments and of one result, in one call.
Shapes = tuple[Sequence[tuple[int, ...]], tuple[int, ...]]


def names(subject: Subject) -> list[str]:
    """Return argument names for a shape function: the function's own first, then made-up ones."""
    return parameters(subject.function, subject.inputs.count, _TAKEN)


def name(subject: Subject, number: int = 0) -> str:
    """Return the name of one argument; "x" if there is no such argument, or a part of one."""
    return [*names(subject)[number:], "x"][0] if not subject.inputs.nested else "x"


def result(subject: Subject, specs: Sequence[str]) -> str:
    """Return the option that declares the results, from the specs of all as source text."""
    written = iter(specs)
    structure = tf.nest.map_structure(lambda _: BareText(next(written)), subject.outputs.structure)
    uses_arguments = any(".shape" in spec or "..." in spec for spec in specs)
    rule = f"lambda {', '.join(names(subject))}: " if uses_arguments and names(subject) else ""
    return f"result={rule}{structure!r}"


def shape_expression(subject: Subject, seen: Sequence[Shapes]) -> str | None:
    """Return an expression in the arguments' shapes that gives the result's, None if none fits."""
    results = [shape for _, shape in seen]
    if len({*map(len, results)}) != 1:
        return None
    # Where an argument is a structure of tensors, expressions name none.
    known = [] if subject.inputs.nested else names(subject)
    sizes: list[tuple[str, list[int]]] = []
    for number, name in enumerate(known):
        shapes = [given[number] for given, _ in seen]
        if shapes == results:
            return f"{name}.shape"
        columns = enumerate(zip(*shapes, strict=False))
        sizes += [(f"{name}.shape[{axis}]", [*column]) for axis, column in columns]
    wanted = enumerate(zip(*results, strict=True))
    found = [_size_expression(sizes, axis, column) for axis, column in wanted]
    return None if None in found else f"[{', '.join(map(str, found))}]"


def _size_expression(
    known: Sequence[tuple[str, list[int]]], axis: int, wanted: Sequence[int]
) -> str | None:
    """Return an expression for a size, from the sizes of the arguments in each call."""
    numbers = [*wanted]
    if len({*numbers}) == 1 and (len(numbers) > 1 or not known):
        # A size on the same axis that has never varied fits as well: prefer it to the number.
        at_axis = [name for name, sizes in known if name.endswith(f"[{axis}]") and sizes == numbers]
        return at_axis[0] if at_axis else str(numbers[0])
    found = (expression for expression, sizes in _expressions(known, numbers) if sizes == numbers)
    return next(found, str(numbers[0]) if len(numbers) == 1 else None)


def _expressions(
    known: Sequence[tuple[str, list[int]]], wanted: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """Yield candidate expressions for a size, simplest first, with their value in each call."""
    yield from known
    for (one, first), (other, second) in itertools.combinations(known, 2):
        yield f"{one} * {other}", [n * m for n, m in zip(first, second, strict=True)]
    for name, sizes in known:
        size, first_wanted = sizes[0], wanted[0]
        by = abs(first_wanted - size)
        yield f"{name} + {by}", [n + by for n in sizes]
        yield f"{name} - {by}", [n - by for n in sizes]
        if size and first_wanted % size == 0:
            yield f"{name} * {first_wanted // size}", [n * (first_wanted // size) for n in sizes]
        if first_wanted and size > first_wanted:
            yield f"{name} // {size // first_wanted}", [n // (size // first_wanted) for n in sizes]


def shown(array: np.ndarray) -> str:
    """Return a value as text for a message, on one line."""
    text = np.array2string(array, threshold=6, edgeitems=2, precision=6, separator=", ")
    return " ".join(text.split())

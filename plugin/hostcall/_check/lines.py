"""The lines of code that findings advise, and values and errors as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from hostcall._callbacks import advice
from hostcall._callbacks.structures import BoundedSpec, Spec
from hostcall._check.subject import Subject

_TAKEN = frozenset({"tf", "hostcall", "np"})  # names that the advised lines use themselves

# The shapes of all arguments and of one result, in one call.
Shapes = tuple[Sequence[tuple[int, ...]], tuple[int, ...]]
# The shapes of all arguments and one size of a result, in one call.
_Sizes = tuple[Sequence[tuple[int, ...]], int]


def names(subject: Subject) -> list[str]:
    """Return argument names for a shape function: the function's own first, then made-up ones."""
    return advice.parameters(subject.function, subject.inputs.count, _TAKEN)


def name(subject: Subject, number: int = 0) -> str:
    """Return the name of one argument; "x" if there is no such argument."""
    return [*names(subject)[number:], "x"][0]


def result(subject: Subject, specs: Sequence[str], uses_arguments: bool) -> str:
    """Return the option that declares the results, from the specs of all as source text."""
    written = iter(specs)
    structure = tf.nest.map_structure(lambda _: _Text(next(written)), subject.outputs.structure)
    rule = f"lambda {', '.join(names(subject))}: " if uses_arguments and names(subject) else ""
    return f"result={rule}{structure!r}"


def spec(spec: Spec, shape: str | None = None) -> str:
    """Return a spec as source text, with `shape` as the text of its shape if that is given."""
    name = spec.dtype.name
    written = f"tf.{name}" if hasattr(tf, name) else f'"{name}"'
    if shape is None and spec.shape.rank is None:
        return f"tf.TensorSpec(None, {written})"
    sizes = shape or f"[{', '.join(map(str, spec.shape.as_list()))}]"
    if isinstance(spec, BoundedSpec) and shape is None:
        return f"hostcall.BoundedSpec({sizes}, {written}, {list(spec.dynamic_dims)})"
    return f"tf.TensorSpec({sizes}, {written})"


def shape_expression(subject: Subject, seen: Sequence[Shapes]) -> str | None:
    """Return an expression in the arguments' shapes that gives the result's, None if none fits."""
    ranks = {len(shape) for _, shape in seen}
    if len(ranks) != 1:
        return None
    # Where an argument is a structure of tensors, expressions name none.
    known = [] if subject.inputs.nested else list(enumerate(names(subject)))
    for number, name in known:
        if all(shape == given[number] for given, shape in seen):
            return f"{name}.shape"
    sizes = []
    for axis in range(ranks.pop()):
        expression = _size_expression(known, axis, [(g, shape[axis]) for g, shape in seen])
        if expression is None:
            return None
        sizes.append(expression)
    return f"[{', '.join(sizes)}]"


def _size_expression(
    named: Sequence[tuple[int, str]], axis: int, seen: Sequence[_Sizes]
) -> str | None:
    known = _sizes(named, seen)
    numbers = [size for _, size in seen]
    if len({*numbers}) == 1 and (len(seen) > 1 or not known):
        # A size on the same axis that has never varied fits as well: prefer it to the number.
        at_axis = [name for name, sizes in known if name.endswith(f"[{axis}]") and sizes == numbers]
        return at_axis[0] if at_axis else str(numbers[0])
    found = (expression for expression, sizes in _expressions(known, numbers) if sizes == numbers)
    return next(found, str(numbers[0]) if len(seen) == 1 else None)


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


def _sizes(named: Sequence[tuple[int, str]], seen: Sequence[_Sizes]) -> list[tuple[str, list[int]]]:
    """Return an expression for each size of the arguments, with its value in each call."""
    return [
        (f"{name}.shape[{axis}]", [given[number][axis] for given, _ in seen])
        for number, name in named
        for axis in range(min(len(given[number]) for given, _ in seen))
    ]


class _Text(str):
    """A text whose `repr` is the text itself."""

    __repr__ = str.__str__


def shown(array: np.ndarray) -> str:
    """Return a value as text for a message, on one line."""
    text = np.array2string(array, threshold=6, edgeitems=2, precision=6, separator=", ")
    return " ".join(text.split())

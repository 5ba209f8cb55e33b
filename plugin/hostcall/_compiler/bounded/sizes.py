"""Sizes that are only bounded when XLA compiles, as symbols, and what follows of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

# An op that makes sizes which XLA only knows a bound of, by the name of its function and its own.
Source: TypeAlias = tuple[str, str]


class UnprovenError(Exception):
    """An op is not known to be right where sizes are bounded; the text says what it is about.

    Attributes:
      sources: where the bounded sizes come from, beside the op's operands.
    """

    def __init__(self, text: str, sources: frozenset[Source] = frozenset()) -> None:
        super().__init__(text)
        self.sources = sources


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A size that only a run tells. Two tensors with the same symbol have the same size.

    Attributes:
      origin: what has it first: the way to a node, the number of a result, and a dimension.
      bound: the largest size, where that is known.
      factors: the sizes that it is the product of, where it is one.
    """

    origin: tuple[str, int, int]
    bound: int | None = dataclasses.field(default=None, compare=False)
    factors: tuple[int | Symbol, ...] = dataclasses.field(default=(), compare=False)


# A size: known, or not before the run, or None: XLA will know it, and it is not known yet.
Size: TypeAlias = int | Symbol | None
Shape: TypeAlias = tuple[Size, ...]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What is known of a value of a program before XLA compiles it.

    Attributes:
      shape: its sizes; None where not even the rank is known.
      contents: the elements, of a vector or scalar of integers that tells sizes; else None.
      tainted: whether sizes that are only bounded have a part in its shape or in its elements.
      sources: the ops that those come from.
      varies: whether XLA cannot know its elements when it compiles, even where the sizes and
        the arguments are known: what a loop, a variable or Python computes.
    """

    shape: Shape | None = None
    contents: Shape | None = None
    tainted: bool = False
    sources: frozenset[Source] = frozenset()
    varies: bool = False

    @property
    def bounded(self) -> bool:
        """Whether a size of it may be bounded."""
        return self.tainted and (self.shape is None or has_symbol(self.shape))


def has_symbol(sizes: Iterable[Size]) -> bool:
    """Whether a size among them is only bounded."""
    return any(isinstance(size, Symbol) for size in sizes)


def product(sizes: Iterable[Size]) -> Size:
    """The number of elements; the same symbol for the same sizes, in whatever order."""
    number, symbols = 1, list[Symbol]()
    pending = [*sizes]
    while pending:
        size = pending.pop()
        if size is None:
            return None
        if not isinstance(size, Symbol):
            number *= size
        elif size.factors:
            pending += size.factors
        else:
            symbols.append(size)
    if number == 0 or not symbols:
        return number
    if number == 1 and len(symbols) == 1:
        return symbols[0]
    symbols.sort(key=lambda symbol: symbol.origin)
    name = "*".join([str(number), *(str(symbol.origin) for symbol in symbols)])
    factors: tuple[int | Symbol, ...] = (number, *symbols)
    return Symbol((name, 0, 0), _bound(factors), factors)


def _bound(factors: Iterable[int | Symbol]) -> int | None:
    total = 1
    for factor in factors:
        bound = factor.bound if isinstance(factor, Symbol) else factor
        if bound is None:
            return None
        total *= bound
    return total


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of an element-wise result.

    Raises:
      UnprovenError: where a bounded size meets another size that may differ from it: XLA would not
        notice.
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_broadcast_size(sizes) for sizes in zip(*padded, strict=True))


def _broadcast_size(sizes: Sequence[Size]) -> Size:
    others = {size for size in sizes if size != 1}
    if not others:
        return 1
    if has_symbol(others) and len(others) > 1:
        raise UnprovenError("it takes sizes that may differ")
    return others.pop() if len(others) == 1 else next((n for n in others if n is not None), None)


def same(sizes: Sequence[Size]) -> Size:
    """The one size that several must be.

    Raises:
      UnprovenError: where a bounded size would have to be the same as another one.
    """
    if len(set(sizes)) == 1:
        return sizes[0]
    if has_symbol(sizes):
        raise UnprovenError("it takes sizes that may differ")
    return next((size for size in sizes if size is not None), None)


def join(tensors: Sequence[Tensor], symbol: Callable[[int], Symbol]) -> Tensor:
    """What is known of a value that is one of several, as after a branch.

    Args:
      tensors: what is known of each of those.
      symbol: a new one for a dimension.

    Raises:
      UnprovenError: where a size is bounded in one and not in another.
    """
    tainted = any(tensor.tainted for tensor in tensors)
    sources = frozenset[Source]().union(*(tensor.sources for tensor in tensors))
    shapes = [tensor.shape for tensor in tensors]
    shape: Any = None
    if all(one is not None and len(one) == len(shapes[0] or ()) for one in shapes):
        columns = zip(*(one for one in shapes if one is not None), strict=True)
        try:
            shape = tuple(_join_sizes(column, symbol, dim) for dim, column in enumerate(columns))
        except UnprovenError as error:
            raise UnprovenError(str(error), sources) from None
    contents = _join_contents([tensor.contents for tensor in tensors])
    varies = any(tensor.varies for tensor in tensors)
    return Tensor(shape, contents, tainted, sources, varies)


def _join_sizes(sizes: Sequence[Size], symbol: Callable[[int], Symbol], dim: int) -> Size:
    if len(set(sizes)) == 1:
        return sizes[0]
    if not has_symbol(sizes):
        return None
    bounds = [size.bound for size in sizes if isinstance(size, Symbol)]
    if len(bounds) < len(sizes):
        raise UnprovenError("it gives a size that is bounded in one case and fixed in another")
    if len(set(bounds)) > 1:
        return symbol(dim)
    return dataclasses.replace(symbol(dim), bound=bounds[0])


def _join_contents(contents: Sequence[Shape | None]) -> Shape | None:
    first = contents[0]
    if first is None or any(other is None or len(other) != len(first) for other in contents):
        return None
    columns = [*zip(*(other for other in contents if other is not None), strict=True)]
    if any(has_symbol(column) and len(set(column)) > 1 for column in columns):
        return None
    return tuple(column[0] if len(set(column)) == 1 else None for column in columns)

"""The ways of calling a Python function from a JAX program that keep the same promises."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import pytest

import hostcall.jax

call = hostcall.jax.call


def by_object(function: Any, result: Any, *args: Any) -> Any:
    """By an object of `hostcall.callback`, which TensorFlow could call, too."""
    struct = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # noqa: E731
    return hostcall.callback(function, result=jax.tree.map(struct, result))(*args)


FLAVOURS: dict[str, Callable[..., Any]] = {
    "unordered": call,
    "ordered": functools.partial(call, ordered=True),
    "pure": functools.partial(call, pure=True),
    "callback": by_object,
}

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
each_effect = pytest.mark.parametrize(
    "flavour", [FLAVOURS["unordered"], FLAVOURS["ordered"]], ids=["unordered", "ordered"]
)


class Log:
    """A callback without results, and what it was called with."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def __call__(self, flavour: Any, *values: Any) -> None:
        flavour(lambda *v: self.entries.append(tuple(map(int, v))), None, *values)

    def take(self) -> list[Any]:
        """Wait for all effects; return and clear the calls noted since the last time."""
        jax.effects_barrier()
        entries = [entry[0] if len(entry) == 1 else entry for entry in self.entries]
        self.entries.clear()
        return entries

"""What a function can change besides its results, as far as it can be seen from outside."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# Of what takes longer to look at, nothing is said.
_MOST_BYTES = 1 << 24
_FRAMEWORKS = ("jax", "jaxlib", "keras", "tensorflow", "torch")


def state_of(function: Callable[..., Any]) -> dict[str, str]:
    """What a function refers to and could change: a hash of each value, by what it is called.

    Variables of its closure, globals that it names, attributes of its object, global generators of
    random numbers. Left out is what cannot be pickled, and what frameworks have made.
    """
    while isinstance(function, functools.partial):
        function = function.func
    found: dict[str, Any] = {
        "NumPy's global random generator": np.random.get_state(legacy=False),
        "the random generator of module random": random.getstate(),
    }
    owner = getattr(function, "__self__", None)
    if owner is None and not isinstance(function, types.FunctionType):
        owner = function
    if owner is not None and not isinstance(owner, type | types.ModuleType):
        attributes = getattr(owner, "__dict__", {})
        found |= {f"attribute {name}": value for name, value in attributes.items()}
    code = getattr(function, "__func__", function)
    if isinstance(code, types.FunctionType):
        variables = inspect.getclosurevars(code)
        named = {**variables.globals, **variables.nonlocals}
        found |= {f"variable {name}": value for name, value in named.items()}
        found |= {f"default {i}": value for i, value in enumerate(code.__defaults__ or ())}
    hashes = {name: _hash(value) for name, value in found.items() if not _is_code(value)}
    return {name: value for name, value in hashes.items() if value is not None}


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What differs."""
    return [name for name, value in after.items() if before.get(name, value) != value]


@contextlib.contextmanager
def printing() -> Iterator[io.StringIO]:
    """What is printed meanwhile, which is shown as well."""
    seen = io.StringIO()
    with contextlib.redirect_stdout(_Both(sys.stdout, seen)):
        yield seen


class _Both(io.TextIOBase):
    def __init__(self, shown: Any, seen: io.StringIO) -> None:
        self._shown, self._seen = shown, seen

    def write(self, text: str) -> int:
        self._seen.write(text)
        return int(self._shown.write(text) or 0)

    def flush(self) -> None:
        self._shown.flush()


def _is_code(value: object) -> bool:
    return isinstance(
        value, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType
    )


def _is_of_framework(value: object) -> bool:
    """Whether pickling may take seconds."""
    return any(cls.__module__.partition(".")[0] in _FRAMEWORKS for cls in type(value).__mro__)


def _hash(value: object) -> str | None:
    try:
        if getattr(value, "nbytes", 0) > _MOST_BYTES or _is_of_framework(value):
            return None
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # pickling runs code of the user's
        return None

"""Exceptions of recorded calls."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from hostcall._recording import values
from hostcall._recording.errors import RecordedError
from hostcall._recording.format import Raised


def encode(error: Exception) -> Raised:
    """An exception, without its traceback."""
    kind = type(error)
    args = [values.encode(value) for value in error.args]
    plain = None if values.unknowns(args) else args
    return Raised(f"{kind.__module__}:{kind.__qualname__}", _text_of(error), plain)


def decode(raised: Raised) -> Exception:
    """The same again: of its class, where that is a loaded one, else a RecordedError.

    Nothing is imported for it: a file must not have code run.
    """
    kind = _class_of(raised.kind)
    if kind is not None:
        for args in _possible(raised):
            with contextlib.suppress(Exception):
                error = kind(*args)
                if _text_of(error) == raised.text:
                    return error
    name = raised.kind.removeprefix("builtins:").replace(":", ".")
    return RecordedError(f"{name}: {raised.text}")


def _possible(raised: Raised) -> list[tuple[Any, ...]]:
    """What its class may be made of; the last one is TensorFlow's."""
    args = [] if raised.args is None else [tuple(values.decode(value) for value in raised.args)]
    return [*args, (raised.text,), (None, None, raised.text)]


def _class_of(name: str) -> type[Exception] | None:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _text_of(error: Exception) -> str:
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # of a `__str__` of the user's
        return ""

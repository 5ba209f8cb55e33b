"""TensorFlow's own registry: it maps tokens of script ops to the objects that its kernel calls."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

from hostcall._tf import features
from hostcall_runtime._errors import LoweringError

EagerFunc = features.EagerFunc
# Maps a token to the object that the stock kernel calls; holds the objects weakly.
functions = features.py_funcs
# Converts a function's result to an array, and keeps the bytes of its strings unchanged.
to_array = features.to_array

QUALIFIED = "hostcall:"  # the prefix of qualified tokens, which name their function for any process
_nonce = ""
_WITH_NONCE = re.compile(r"pyfunc_\d+_([0-9a-f]{8})")


def renew_nonce() -> None:
    """Renew the random part of tokens, so that later tokens differ from the present ones."""
    global _nonce
    _nonce = os.urandom(4).hex()


def nonce() -> str:
    """Return the random part of tokens that are made now."""
    return _nonce


def is_of_other_process(token: str) -> bool:
    """Return whether another process, a parent too, has made the token of a nameless function."""
    match = _WITH_NONCE.fullmatch(token)
    return match is not None and match[1] != _nonce


def new_token() -> str:
    """Return a token that no op has yet."""
    return str(functions._next_unique_token())


def entry_of(token: str) -> object:
    """Return the registry's entry for a token: a spec, a function of TensorFlow's, or None."""
    # Ops of a partitioned function may have tokens of stand-ins for specs; for these, it is the
    # spec. A token of a saved graph may cause an import.
    try:
        entry = functions.get(token)
    except LoweringError:  # `why_missing` returns it
        return None
    return getattr(entry, "__hostcall_stands_for__", entry)


def find_present(token: str) -> object:
    """Return the registry's entry for a token only if it is there already: import nothing."""
    entry = features.functions_of_tokens.get(token)
    return getattr(entry, "__hostcall_stands_for__", entry)


def all_present() -> list[Any]:
    """Return the living entries of all tokens."""
    return [*features.functions_of_tokens.values()]


def is_stand_in(token: str) -> bool:
    """Return whether a token leads to an entry that stands for a spec, as ops on the host have."""
    return hasattr(features.functions_of_tokens.get(token), "__hostcall_stands_for__")


def why_missing(token: str) -> LoweringError | None:
    """Return the error that makes `entry_of` return None, if it is known."""
    try:
        functions.get(token)
    except LoweringError as error:
        return error
    return None


def is_qualified(token: str) -> bool:
    """Return whether a token is qualified: one of a saved graph, which names its function."""
    return token.startswith(QUALIFIED)


def is_own(token: str) -> bool:
    """Return whether a token stands for a spec made in this process, and not from a token."""
    return _own(token) is not None


def _own(token: str) -> Any:
    entry = find_present(token)
    return entry if getattr(entry, "saved", token) is None else None


def title_of(token: str) -> str:
    """Return the name of a token in messages and recordings, short for a qualified token."""
    if not is_qualified(token):
        return token
    if (own := _own(token)) is not None:
        return str(own.title)
    return f"saved_pyfunc_{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def register_token(token: str, function: object) -> None:
    """Make the stock kernel call `function` for ops with this token; hold it weakly."""
    features.functions_of_tokens[token] = function

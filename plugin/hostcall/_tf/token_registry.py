"""TensorFlow's own registry, from the tokens of script ops to what the stock kernel calls."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

from hostcall._tf import features
from hostcall_runtime._errors import LoweringError

EagerFunc = features.EagerFunc
# Token -> object that the stock kernel calls; holds its values weakly.
functions = features.py_funcs
# From what a function returns to an array; the bytes of its strings are kept as they are.
to_array = features.to_array

# How the tokens in saved graphs begin, which say what function they mean in any process.
QUALIFIED = "hostcall:"

_nonce = ""
_WITH_NONCE = re.compile(r"pyfunc_\d+_([0-9a-f]{8})")


def renew_nonce() -> None:
    """Gives tokens that are made from now on another random part than those that there are."""
    global _nonce
    _nonce = os.urandom(4).hex()


def nonce() -> str:
    """The random part of tokens that are made now."""
    return _nonce


def is_of_other_process(token: str) -> bool:
    """Whether another process has made it, for a function that had no name.

    Also the one from which this was forked, whose functions there are here, too.
    """
    match = _WITH_NONCE.fullmatch(token)
    return match is not None and match[1] != _nonce


def new_token() -> str:
    """A token that no op has yet."""
    token: str = functions._next_unique_token()
    return token


def find(token: str) -> Any:
    """What the registry has under a token: a spec, a function of TensorFlow's, or None.

    A function that was partitioned has ops with the tokens of what stands for specs. The token of
    a saved graph may lead to an import.
    """
    try:
        entry = functions.get(token)
    except LoweringError:  # see `why_missing`
        return None
    return getattr(entry, "__hostcall_stands_for__", entry)


def find_present(token: str) -> Any:
    """The same of what is there already: nothing is imported for it."""
    entry = features.functions_of_tokens.get(token)
    return getattr(entry, "__hostcall_stands_for__", entry)


def why_missing(token: str) -> LoweringError | None:
    """Why `find` returns None, where that is known."""
    try:
        functions.get(token)
    except LoweringError as error:
        return error
    return None


def is_qualified(token: str) -> bool:
    """Whether it is the token of a saved graph, which says what function it means."""
    return token.startswith(QUALIFIED)


def is_own(token: str) -> bool:
    """Whether it stands for a spec that was made in this process, and not from a token."""
    return _own(token) is not None


def _own(token: str) -> Any:
    entry = find_present(token)
    return entry if getattr(entry, "saved", token) is None else None


def title_of(token: str) -> str:
    """What messages call a token, and by which recorded calls are known: short for a qualified one.

    It can be told before the function is looked up.
    """
    if not is_qualified(token):
        return token
    if (own := _own(token)) is not None:
        title: str = own.title
        return title
    return f"saved_pyfunc_{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def register_token(token: str, function: object) -> None:
    """Makes the stock kernel call `function` for ops with this token; holds it weakly."""
    features.functions_of_tokens[token] = function

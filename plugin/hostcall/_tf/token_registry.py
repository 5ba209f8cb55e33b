"""TensorFlow's own registry, from the tokens of script ops to what the stock kernel calls."""

from __future__ import annotations

import hashlib
from typing import Any

from hostcall._tf import names
from hostcall_runtime._errors import LoweringError

EagerFunc = names.EagerFunc
# Token -> object that the stock kernel calls; holds its values weakly.
functions = names.py_funcs
# From what a function returns to an array; the bytes of its strings are kept as they are.
to_array = names.to_array

# How the tokens in saved graphs begin, which say what function they mean in any process.
QUALIFIED = "hostcall:"

# The titles of this process's own specs that it has saved, by their qualified tokens.
_own_titles: dict[str, str] = {}


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
    entry = names.functions_of_tokens.get(token)
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
    """Whether it stands for a spec of this process that was saved."""
    return token in _own_titles


def title_of(token: str) -> str:
    """What messages call a token, and by which recorded calls are known: short for a qualified one.

    It can be told before the function is looked up.
    """
    if not is_qualified(token):
        return token
    own = _own_titles.get(token)
    return own or f"saved_pyfunc_{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def register_token(token: str, function: object) -> None:
    """Makes the stock kernel call `function` for ops with this token; holds it weakly."""
    names.functions_of_tokens[token] = function


def register_saved(token: str, title: str, spec: object) -> None:
    """The same for a spec of this process and its token in a graph that is saved."""
    _own_titles[token] = title
    register_token(token, spec)

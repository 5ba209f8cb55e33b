"""TensorFlow's own registry, from the tokens of script ops to what the stock kernel calls."""

from __future__ import annotations

from typing import Any

from hostcall._tf import names

EagerFunc = names.EagerFunc
# Token -> object that the stock kernel calls; holds its values weakly.
functions = names.py_funcs
# From what a function returns to an array; the bytes of its strings are kept as they are.
to_array = names.to_array


def new_token() -> str:
    """A token that no op has yet."""
    token: str = functions._next_unique_token()
    return token


def find(token: str) -> Any:
    """What the registry has under a token: a spec, a function of TensorFlow's, or None.

    A function that was partitioned has ops with the tokens of what stands for specs.
    """
    entry = functions.get(token)
    return getattr(entry, "__hostcall_stands_for__", entry)


def register_token(token: str, function: object) -> None:
    """Makes the stock kernel call `function` for ops with this token; holds it weakly."""
    names.functions_of_tokens[token] = function

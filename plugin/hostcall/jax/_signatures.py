"""What functions of JAX's take that hostcall replaces.

One that takes something else than in the versions that were tried may mean something else by it,
and is left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

# At the end of the parameters that were tried: and whatever comes then.
_MORE = " ..."


def misfit(target: str, stock: Any, wrap: Callable[[Any], Any], tried: Sequence[str]) -> str:
    """Why a function of JAX's cannot be replaced, "" where it can.

    Args:
      target: the function, for the message.
      stock: the function, or the entry of a lowering rule.
      wrap: what makes hostcall's of it.
      tried: the names of its parameters in the versions that were tried; none for no function.
    """
    found = _parameters(stock)
    if tried and not any(_is_as(found, one) for one in tried):
        known = " or ".join(f"({one.replace(' ', ', ')})" for one in tried)
        return f"{target} with other parameters, ({found.replace(' ', ', ')}) for {known}"
    try:
        wrap(stock)
    except Exception as error:
        return f"another {target}, which cannot be replaced ({type(error).__name__}: {error})"
    return ""


def _parameters(stock: Any) -> str:
    try:
        return " ".join(inspect.signature(getattr(stock, "rule", stock)).parameters)
    except (TypeError, ValueError):
        return "unknown"


def _is_as(found: str, tried: str) -> bool:
    if tried.endswith(_MORE):
        return f"{found} ".startswith(f"{tried.removesuffix(_MORE)} ")
    return found == tried

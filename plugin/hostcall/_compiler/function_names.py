"""What the names of functions tell."""

from __future__ import annotations

import re

# Before a digest, in the name of a function that has changed before it is compiled.
CHANGED = "__changed_"

# What TensorFlow makes of the name of a function, and a partitioning of that.
_NAME = re.compile(
    r"(?:__(?:inference|forward|backward)_)?(?P<name>.+?)(?:_\d+)?"
    rf"(?:{CHANGED}[0-9a-f]+)?(?P<part>__partitioned.*)?"
)


def plain(function: str) -> str:
    """What the user calls a function, as far as its name tells."""
    match = _NAME.fullmatch(function)
    return match["name"] if match else function


def without_number(function: str) -> str:
    """A name without what TensorFlow adds to tell one trace of a function from the next."""
    match = _NAME.fullmatch(function)
    return match["name"] + (match["part"] or "") if match else function

"""The names of functions: what they tell, and digests in them.

TensorFlow finds functions by their names, and so does what it keeps of XLA's programs. But several
functions may have one name: a dataset optimizes a copy of its own of what it maps, and so may each
session. Functions that hostcall makes of them have digests in their names, so that equal names mean
equal functions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from hostcall._tf import token_registry
from hostcall._tf.types import FunctionDef

_DIGEST = "__digest_"
_BYTES = 8

# What TensorFlow makes of the name of a function, and a partitioning of that.
_NAME = re.compile(
    r"(?:__(?:inference|forward|backward)_)?(?P<name>.+?)(?:_\d+)?"
    rf"(?:{_DIGEST}[0-9a-f]+)?(?P<part>__partitioned.*)?"
)
_DIGESTS = re.compile(rf"{_DIGEST}[0-9a-f]+")


def of_contents(functions: Iterable[FunctionDef]) -> str:
    """Return what tells functions from others of the same names, to be put behind a name."""
    digest = hashlib.blake2b(digest_size=_BYTES)
    nonce = token_registry.nonce().encode()
    for function in sorted(functions, key=lambda function: function.signature.name):
        text = function.SerializeToString(deterministic=True)
        # The same functions have the same names in the next process, which finds their programs in
        # TensorFlow's cache of them.
        digest.update(text.replace(nonce, b""))
    return f"{_DIGEST}{digest.hexdigest()}"


def without_digests(function: str) -> str:
    """Return a name without what `of_contents` has put into it."""
    return _DIGESTS.sub("", function)


def plain(function: str) -> str:
    """What the user calls a function, as far as its name tells."""
    match = _NAME.fullmatch(function)
    return match["name"] if match else function


def without_number(function: str) -> str:
    """A name without what TensorFlow adds to tell one trace of a function from the next."""
    match = _NAME.fullmatch(function)
    return match["name"] + (match["part"] or "") if match else function

"""The names of functions: the user's, TensorFlow's, and those that hostcall gives.

TensorFlow finds functions, and the XLA programs that it caches, by function name. But several
functions may share one name: a dataset optimizes its own copy of the function that it maps, and
each session may do so, too. So hostcall puts digests into the names of the functions that it makes
from others: equal names then mean equal functions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from hostcall._tf import token_registry
from hostcall._tf.types import FunctionDef

_DIGEST = "__digest_"
_BYTES = 8

# The end of the name of a function that takes and returns integers of eight bits for those of four.
OF_EIGHT_BITS = "__of_eight_bits"

# The form of the name that TensorFlow, and then a partitioning, makes of a function's name.
_NAME = re.compile(
    r"(?:__(?:inference|forward|backward)_)?(?P<name>.+?)(?:_\d+)?"
    rf"(?:{_DIGEST}[0-9a-f]+(?:{OF_EIGHT_BITS})?)*(?P<part>__partitioned.*)?"
)
_DIGESTS = re.compile(rf"{_DIGEST}[0-9a-f]+(?:{OF_EIGHT_BITS})?")


def digest_of_functions(functions: Iterable[FunctionDef]) -> str:
    """Return a digest of functions; appended to a name, it tells apart functions of equal names."""
    digest = hashlib.blake2b(digest_size=_BYTES)
    nonce = token_registry.nonce().encode()
    for function in sorted(functions, key=lambda function: function.signature.name):
        text = function.SerializeToString(deterministic=True)
        # Without the nonce, equal functions have equal names in the next process, too, which then
        # finds their programs in TensorFlow's cache.
        digest.update(text.replace(nonce, b""))
    return f"{_DIGEST}{digest.hexdigest()}"


def without_digests(function: str) -> str:
    """Return a name without the digests of `digest_of_functions`."""
    return _DIGESTS.sub("", function)


def before_digest(function: str) -> str:
    """Return the name of the function that hostcall has made another one of."""
    return function.partition(_DIGEST)[0]


def plain(function: str) -> str:
    """Return the user's name for a function, derived from TensorFlow's name."""
    match = _NAME.fullmatch(function)
    return match["name"] if match else function


def without_number(function: str) -> str:
    """Return a name without the number that TensorFlow adds to tell a function's traces apart."""
    match = _NAME.fullmatch(function)
    return match["name"] + (match["part"] or "") if match else function

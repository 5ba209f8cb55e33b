"""Callback ids that are the same in every process, for caches that keep compiled programs.

A program holds the ids of its callbacks. With ids at random a cache finds none of the programs of
other processes, and grows by one for each. A process that finds a program has lowered the very same
one itself, ids included, so it has callbacks of its own under them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

# Each tells whether programs that are compiled now may be kept for other processes.
caches: list[Callable[[], bool]] = []

_BITS = 62


def wanted(*identity: object) -> int:
    """The id that a callback should have, 0 for any.

    Args:
      identity: what the callback has in common with the same one in another process, and with few
        others in this one.
    """
    if not any(keeps_programs() for keeps_programs in caches):
        return 0
    text = "\0".join(map(str, identity))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (1 << _BITS) or 1

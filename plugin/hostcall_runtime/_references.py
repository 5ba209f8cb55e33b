"""Who else refers to an object."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def last_is_alone(held: Sequence[object]) -> bool:
    """Return whether only the list, and once, refers to its last object."""
    # Counts for a local variable differ: from Python 3.14 on, an argument that a variable holds is
    # passed without a reference of its own. `map` keeps one of its own in each version.
    return next(map(sys.getrefcount, reversed(held))) <= 2

"""What becomes of a call in a loop over a batch that is made one of whole batches."""

from __future__ import annotations

SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL = "sequential", "expand_dims", "broadcast_all"
METHODS = (SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL)

# One call for the whole batch.
OF_BATCHES = (EXPAND_DIMS, BROADCAST_ALL)


def check_vmap_method(method: object) -> None:
    """Checks that there is such a method.

    Raises:
      ValueError: when there is none.
    """
    if method is not None and method not in METHODS:
        raise ValueError(f"hostcall: vmap_method={method!r} is none of {METHODS}.")

"""What becomes of a call in a loop over a batch that is made one of whole batches."""

from __future__ import annotations

SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL = "sequential", "expand_dims", "broadcast_all"
MAP = "map"
METHODS = (SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL, MAP)

# One call for the whole batch; by the last, one that an executor divides.
OF_BATCHES = (EXPAND_DIMS, BROADCAST_ALL, MAP)

_NO_EXECUTOR = (
    "hostcall: vmap_method='map' divides a batch among the workers of an executor, and there is "
    "none. Write executor=concurrent.futures.ThreadPoolExecutor(4), for one."
)


def check_vmap_method(method: object, executor: object) -> None:
    """Checks that there is such a method, and the executor that it needs.

    Raises:
      ValueError: when there is none.
    """
    if method is not None and method not in METHODS:
        raise ValueError(f"hostcall: vmap_method={method!r} is none of {METHODS}.")
    if method == MAP and executor is None:
        raise ValueError(_NO_EXECUTOR)

"""The routes that a call in a compiled function of TensorFlow's can take."""

from __future__ import annotations

AUTO, CUSTOM_CALL, PARTITION = "auto", "custom_call", "partition"
ROUTES = (AUTO, CUSTOM_CALL, PARTITION)


def checked(route: object, what: str = "route") -> str:
    """`route`, if it is one.

    Raises:
      ValueError: when it is none.
    """
    if route not in ROUTES:
        raise ValueError(f"hostcall: {what}={route!r} is none of {', '.join(map(repr, ROUTES))}.")
    return str(route)

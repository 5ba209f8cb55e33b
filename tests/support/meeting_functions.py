"""Functions for worker processes that wait for one another; without TensorFlow's slow import."""

from typing import Any

from tests.support.threads import PATIENCE

_meeting: Any = None


def set_meeting(barrier: Any) -> None:
    global _meeting
    _meeting = barrier


def meet(x: Any) -> Any:
    """Returns 2x when as many calls as the barrier wants have begun."""
    _meeting.wait(PATIENCE)
    return x + x

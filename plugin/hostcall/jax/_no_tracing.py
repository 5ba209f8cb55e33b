"""A replacement of `jax.no_tracing` under which programs with calls still run.

Where it can, JAX runs a compiled program without Python. JAX assumes that a program that reaches
Python must be traced. Programs with calls reach Python each time: see `_execution`.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from jax._src import pjit as _pjit

from hostcall.jax import _primitive

# The name of JAX's function that runs a jitted function when the fast path cannot, and its local
# variables that hold the function and the arguments.
_SLOW_PATH = "cache_miss"
_GIVEN = ("fun", "jit_info", "args", "kwargs")


class NoTracing:
    """JAX's switch, which is off for programs with calls that have been traced."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    @property
    def value(self) -> Any:
        """The value of the switch: whether the code that reads it must not trace."""
        return self._stock.value and not _runs_what_was_traced(sys._getframe(1))

    def __call__(self, *args: Any) -> Any:
        return self._stock(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)


def _runs_what_was_traced(frame: FrameType) -> bool:
    if frame.f_globals is not vars(_pjit) or frame.f_code.co_name != _SLOW_PATH:
        return False
    given = [frame.f_locals.get(name) for name in _GIVEN]
    try:
        params, _ = _pjit._infer_params(*given)
    except Exception:  # from the switch, which is read once more, or from an argument
        return False
    return _primitive.holds_call(params.params["jaxpr"].jaxpr)

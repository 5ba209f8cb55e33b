"""`jax.no_tracing`: programs with calls run where JAX is not to trace.

JAX runs a compiled program without asking Python, where it can, and takes all that comes to Python
for a program that is to be traced. Programs with calls come to Python each time: see `_execution`.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from jax._src import pjit as _pjit

from hostcall.jax import _primitive

# Of JAX's function that runs a jitted function which its fast path cannot run: its name, and how it
# calls what it was given.
_SLOW_PATH = "cache_miss"
_GIVEN = ("fun", "jit_info", "args", "kwargs")


class NoTracing:
    """JAX's switch, which is off for programs with calls that have been traced."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    @property
    def value(self) -> Any:
        """Whether whoever asks must not trace."""
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
    except Exception:  # the switch's own, since this asks it once more, or one of the arguments'
        return False
    return _primitive.holds_call(params.params["jaxpr"].jaxpr)

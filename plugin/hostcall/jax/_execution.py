"""The execution of programs with calls; on CPUs on the thread that starts them, to their end.

A call may run JAX programs. XLA has a fixed number of places for programs, and a program keeps its
place while it waits for another one. If XLA queued programs with calls, the programs behind them
could take all places, or all of XLA's threads. Then a call would wait for one forever. XLA runs a
program with callbacks at once when nothing is left to wait for. So hostcall waits for the inputs
before XLA would, and runs each program first on an execution stream of its own.

Where it can, JAX runs a compiled program without Python, and assumes that a program that reaches
Python must be traced. Programs with calls reach Python each time. So `jax.no_tracing` is replaced
by a switch under which those that have been traced still run.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
from jax._src import dispatch as _dispatch
from jax._src import pjit as _pjit
from jax._src.interpreters import pxla as _pxla
from jax._src.lib import _jax as _jaxlib

from hostcall.jax import _names, _primitive, _profiling, _sharding
from hostcall.jax._lowering import Owned
from hostcall_runtime import _runs
from hostcall_runtime._locks import PLACES
from hostcall_runtime._runs import RunningProgram

# The stream ids of program runs. They begin above the ids that threads have.
_streams = itertools.count(1 << 40)

# Keyed by the objects that run the programs.
_programs: weakref.WeakKeyDictionary[Any, RunningProgram] = weakref.WeakKeyDictionary()


class Execution(_pxla.ExecuteReplicated):  # type: ignore[misc]
    """JAX's entry into a compiled program, which may come after one that has failed."""

    __slots__ = ()

    def __call__(self, *args: Any) -> object:
        _profiling.look()
        return super().__call__(*args)

    def _add_tokens_to_inputs(self, input_bufs: Any) -> object:
        try:
            return super()._add_tokens_to_inputs(input_bufs)
        except jax.errors.JaxRuntimeError:
            # On a GPU, JAX learns here that the program before has failed. JAX before 0.12 would
            # keep the tokens of that one, and no later call with the effect could be made.
            if _names.has(_names.FAILED_TOKENS):
                for effect in self.ordered_effects:
                    _dispatch.runtime_tokens.current_tokens.pop(effect, None)
            raise


class WaitingExecution(Execution):
    """The entry into a program for the CPU, with the waiting that the module describes."""

    __slots__ = ()

    def __call__(self, *args: Any) -> object:
        stream = _jaxlib.get_execution_stream_id()
        _jaxlib.set_execution_stream_id(next(_streams))
        try:
            with PLACES.taken(), _runs.running(_programs[self]):
                return super().__call__(*args)
        finally:
            _jaxlib.set_execution_stream_id(stream)

    def _add_tokens_to_inputs(self, input_bufs: Any) -> object:
        buffers = super()._add_tokens_to_inputs(input_bufs)
        jax.block_until_ready(buffers)
        return buffers

    def _handle_token_bufs(self, token_bufs: Any, sharded_token: Any) -> None:
        # XLA does not run the program at once on several devices, or while another thread still
        # reads a donated buffer. JAX must not keep the tokens of a program that fails.
        sharded_token.block_until_ready()
        super()._handle_token_bufs(token_bufs, sharded_token)


class JointExecution(WaitingExecution):
    """The entry into a program for several devices, of this process or others."""

    __slots__ = ()

    def __call__(self, *args: Any) -> object:
        _sharding.check_not_nested()
        return super().__call__(*args)


def waiting(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap JAX's `build_unsafe_call` so that programs with calls run by the classes above."""

    @functools.wraps(stock)
    def build_unsafe_call(self: Any) -> object:
        run = stock(self)
        called = _called_by(self)
        if called and self.backend.platform != "cpu":
            run.__class__ = Execution
        elif called:
            several = any(one.several_devices for one in called)
            several |= len(run.xla_executable.local_devices()) > 1
            run.__class__ = JointExecution if several else WaitingExecution
            _programs[run] = RunningProgram(one.callback_id for one in called)
            run.has_unordered_effects = True  # or JAX would run pure ones without Python
        return run

    return build_unsafe_call


def _called_by(executable: Any) -> list[Owned]:
    """Return the callbacks that an executable calls."""
    return [one for one in executable.host_callbacks or () if isinstance(one, Owned)]


# The name of JAX's function that runs a jitted function when the fast path cannot, and its local
# variables that hold the function and the arguments.
_SLOW_PATH = "cache_miss"
_GIVEN = ("fun", "jit_info", "args", "kwargs")


class NoTracing:
    """JAX's switch, which is off for programs with calls that have been traced."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    @property
    def value(self) -> bool:
        """The value of the switch: whether the code that reads it must not trace."""
        return self._stock.value and not _runs_what_was_traced(sys._getframe(1))

    def __call__(self, *args: Any) -> object:
        return self._stock(*args)

    def __getattr__(self, name: str) -> object:
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

"""The execution of programs with calls on CPUs: on the thread that starts them, to their end.

A call may run JAX programs. XLA has a fixed number of places for programs, and a program keeps its
place while it waits for another one. If XLA queued programs with calls, the programs behind them
could take all places, or all of XLA's threads. Then a call would wait for one forever. XLA runs a
program with callbacks at once when nothing is left to wait for. So hostcall waits for the inputs
before XLA would, and runs each program first on an execution stream of its own.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import jax
from jax._src.interpreters import pxla as _pxla
from jax._src.lib import _jax as _jaxlib

from hostcall.jax import _sharding
from hostcall.jax._lowering import Owned
from hostcall_runtime import _runs
from hostcall_runtime._locks import PLACES
from hostcall_runtime._runs import Program

# The stream ids of program runs. They begin above the ids that threads have.
_streams = itertools.count(1 << 40)

# Keyed by the objects that run the programs.
_programs: weakref.WeakKeyDictionary[Any, Program] = weakref.WeakKeyDictionary()


class WaitingExecution(_pxla.ExecuteReplicated):  # type: ignore[misc]
    """JAX's entry into a compiled program, with the waiting that the module describes."""

    __slots__ = ()

    def __call__(self, *args: Any) -> Any:
        if len(self.xla_executable.local_devices()) > 1:
            _sharding.check_not_nested()
        stream = _jaxlib.get_execution_stream_id()
        _jaxlib.set_execution_stream_id(next(_streams))
        try:
            with PLACES.taken(), _runs.running(_programs[self]):
                return super().__call__(*args)
        finally:
            _jaxlib.set_execution_stream_id(stream)

    def _add_tokens_to_inputs(self, input_bufs: Any) -> Any:
        buffers = super()._add_tokens_to_inputs(input_bufs)
        jax.block_until_ready(buffers)
        return buffers

    def _handle_token_bufs(self, token_bufs: Any, sharded_token: Any) -> None:
        # XLA does not run the program at once on several devices, or while another thread still
        # reads a donated buffer. JAX must not keep the tokens of a program that fails.
        sharded_token.block_until_ready()
        super()._handle_token_bufs(token_bufs, sharded_token)


def waiting(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap JAX's `build_unsafe_call` so that CPU programs with calls run by `WaitingExecution`."""

    @functools.wraps(stock)
    def build_unsafe_call(self: Any) -> Any:
        run = stock(self)
        if self.host_callbacks and self.backend.platform == "cpu" and _called_by(self):
            run.__class__ = WaitingExecution
            _programs[run] = Program(_called_by(self))
            run.has_unordered_effects = True  # or JAX would run pure ones without Python
        return run

    return build_unsafe_call


def _called_by(executable: Any) -> list[int]:
    """Return the ids of the callbacks that an executable calls."""
    return [one.callback_id for one in executable.host_callbacks if isinstance(one, Owned)]

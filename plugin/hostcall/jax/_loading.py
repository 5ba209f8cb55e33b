"""The installation of hostcall in JAX, and JAX's settings of threads.

`import hostcall.jax` calls `load`. JAX's states are C++ objects with a value for each thread. JAX
returns all values that a trace depends on in one tuple, so comparing two threads is cheap.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax._src import config as _config

from hostcall._functions import frameworks
from hostcall.jax import _call, _compilation, _names, _patches, _primitive, _rules, _values
from hostcall_runtime import _fire_and_forget, _patching, _registry, _runs

# The states of the trace itself, and the guard that keeps JAX to one thread: no user settings.
_STAYS = frozenset({"trace_state", "axis_env_state", "jax_thread_guard"})


def carry() -> None:
    """Give each call the JAX settings of the thread that started its program, on any thread."""
    if _names.has(_names.SETTINGS):
        names = _trace_names()
        of_trace = _states(vars(_config))
        # The states behind `jax.set_mesh` and the like have no value for the process.
        bare = _config.config_ext.Config
        contexts = {name: state for name, state in of_trace.items() if type(state) is bare}
        others = _states(vars(jax)) | contexts
        others = {name: state for name, state in others.items() if name not in names}
        traced = [of_trace.get(name) for name in names]
        _runs.captures.append(functools.partial(_CapturedSettings, traced, [*others.values()]))


def _states(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a namespace's states by name. Users can set those that JAX exports for a block."""
    states = [one for one in namespace.values() if isinstance(one, _config.config_ext.Config)]
    return {state.name: state for state in states if state.name not in _STAYS}


def _trace_names() -> list[str]:
    """Return the names of the values of `trace_context`, in order; none if JAX does not tell."""
    tell: Any = getattr(_config, "trace_context_names", list)
    try:
        names = [*tell()]
    except NotImplementedError:
        return []
    values = _config.trace_context()
    return names if isinstance(values, tuple) and len(values) == len(names) else []


class _CapturedSettings:
    """The JAX settings of one thread; `traced` are the states of `trace_context`, or None."""

    __slots__ = ("_context", "_others", "_traced", "_values")

    def __init__(self, traced: list[Any], others: list[Any]) -> None:
        self._traced = traced
        self._others = others
        self._context = _config.trace_context() if traced else ()
        self._values = [*map(_config.config_ext.Config.get_local, others)]

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Apply the settings to this thread inside the context."""
        with contextlib.ExitStack() as stack:
            if self._traced and _config.trace_context() != self._context:
                # Parts of JAX that are imported later add states of their own traces to the end.
                for state, value in zip(self._traced, self._context, strict=False):
                    if state is not None and state.value != value:
                        stack.enter_context(_set(state, value))
            for state, value in zip(self._others, self._values, strict=True):
                if state.get_local() is not value:
                    stack.enter_context(_set(state, value))
            yield


@contextlib.contextmanager
def _set(state: Any, value: object) -> Iterator[None]:
    """Set a parsed value inside the context, as `State.__call__` does."""
    changed = getattr(state, "_update_thread_local_hook", None) or (lambda _: None)
    before = state.swap_local(value)
    unset = _config.config_ext.unset
    changed(None if value is unset else value)
    try:
        yield
    finally:
        state.set_local(before)
        changed(None if before is unset else before)


def load() -> None:
    """Install hostcall's rules and patches in JAX, and make JAX known to `hostcall.callback`."""
    _patches.check()
    _primitive.register()
    _rules.register()
    # A running program may still hand over calls.
    _fire_and_forget.programs_end.append(jax.effects_barrier)
    _registry.caches.append(_compilation.is_on)
    _patches.hide_frames()
    carry()
    _patching.add(_patches.TABLE)
    frameworks.enter(
        frameworks.Jax(
            call=_call.call_of_user_function,
            check_handler=_rules.check_handler,
            run_handler=_rules.run_handler,
            is_tracing=_values.is_tracing,
        )
    )

"""What JAX keeps for each thread: `jax.enable_x64`, `jax.default_device`, `jax.set_mesh`, ...

JAX's states are objects of C++ with a value for each thread. What a trace depends on comes in one
tuple, so that it costs next to nothing to look whether two threads agree.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from jax._src import config as _config

from hostcall.jax import _names
from hostcall_runtime import _starters

# How a trace stands, and not what the user has said.
_OF_TRACES = frozenset({"trace_state", "axis_env_state"})


def carry() -> None:
    """Has calls see the settings of who started the program, on whatever thread they run."""
    if _names.has(_names.SETTINGS):
        states = _states()
        names = _trace_names()
        traced = [states.pop(name, None) for name in names]
        _starters.captures.append(_capture_of(traced, [*states.values()]))


def _states() -> dict[str, Any]:
    """All states that users can set, by their names."""
    known = [*vars(_config).values(), *_config.config._value_holders.values()]
    states = {state.name: state for state in known if isinstance(state, _config.config_ext.Config)}
    return {name: state for name, state in states.items() if name not in _OF_TRACES}


def _trace_names() -> list[str]:
    """The names of what `trace_context` returns, in its order; none where JAX does not tell."""
    tell = getattr(_config, "trace_context_names", None)
    try:
        names = [*tell()] if tell is not None else []
    except NotImplementedError:
        return []
    values = _config.trace_context()
    return names if isinstance(values, tuple) and len(values) == len(names) else []


def _capture_of(traced: list[Any], others: list[Any]) -> Callable[[], Any]:
    """What captures the states of `trace_context`, None for those to leave, and the others."""
    get_local = _config.config_ext.Config.get_local

    def capture() -> Callable[[], contextlib.AbstractContextManager[None]]:
        context = _config.trace_context() if traced else ()
        values = [*map(get_local, others)]

        @contextlib.contextmanager
        def applied() -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                if traced and _config.trace_context() != context:
                    for state, value in zip(traced, context, strict=True):
                        if state is not None and state.value != value:
                            stack.enter_context(_set(state, value))
                for state, value in zip(others, values, strict=True):
                    if get_local(state) is not value:
                        stack.enter_context(_set(state, value))
                yield

        return applied

    return capture


@contextlib.contextmanager
def _set(state: Any, value: object) -> Iterator[None]:
    """As `State.__call__` does it, for a value that has been parsed."""
    changed = getattr(state, "_update_thread_local_hook", None) or (lambda _: None)
    before = state.swap_local(value)
    unset = _config.config_ext.unset
    changed(None if value is unset else value)
    try:
        yield
    finally:
        state.set_local(before)
        changed(None if before is unset else before)

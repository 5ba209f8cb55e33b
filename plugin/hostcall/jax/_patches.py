"""Everything of JAX that hostcall replaces, in one table.

Each rule that stands in for one of JAX's hands programs without calls of hostcall's to JAX's rule
at once. `hostcall.disable()` puts JAX's own objects back. What hostcall registers under keys of its
own, the rules of its primitive and the properties of its effects, is in `_rules` and `_effects` and
stays: no other program can reach it.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from jax import lax
from jax._src import effects as _jax_effects

from hostcall.jax import _control_flow, _effects, _names, _overlap, _reducers
from hostcall_runtime._patching import Patch, PatchTable, replacement

_BATCHERS = ("jax.interpreters.batching", "fancy_primitive_batchers")
_PARTIAL_EVAL = ("jax.interpreters.partial_eval", "custom_partial_eval_rules")
_LOWERINGS = ("jax._src.interpreters.mlir", "_lowerings")


def _of(module: str, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def _attribute(module: str, path: str, wrap: Callable[[Any], Any], why: str, feature: str) -> Patch:
    """The patch of an attribute of a module, or of a class in it."""
    owner, _, name = path.rpartition(".")

    def write(value: object) -> None:
        setattr(_of(module, owner) if owner else importlib.import_module(module), name, value)

    return replacement(
        f"{module}.{path}", lambda: _of(module, path), write, wrap, why=why, feature=feature
    )


def _rule(
    registry: tuple[str, str], primitive: Any, wrap: Callable[[Any], Any], why: str, feature: str
) -> Patch:
    """The patch of the rule of one of JAX's primitives."""

    def write(value: object) -> None:
        _of(*registry)[primitive] = value

    return replacement(
        f"{'.'.join(registry)}[{primitive}]",
        lambda: _of(*registry)[primitive],
        write,
        wrap,
        why=why,
        feature=feature,
    )


def _allowed_in_control_flow(kind: type) -> Patch:
    """JAX refuses calls in branches and loops where the rules of those are its own."""
    allowed = _jax_effects.control_flow_allowed_effects
    return Patch(
        f"jax._src.effects.control_flow_allowed_effects: {kind.__name__}",
        lambda: allowed.add_type(kind),
        lambda: allowed._effect_types.discard(kind),
        lambda: kind in allowed._effect_types,
        "JAX allows calls with side effects in branches and loops.",
        _names.CONTROL_FLOW,
    )


def _waiting(stock: Any) -> Any:
    from hostcall.jax import _execution  # whose class is made of one of JAX's

    return _execution.waiting(stock)


def _no_tracing(stock: Any) -> Any:
    from hostcall.jax import _no_tracing  # which needs private names that may not be there

    return _no_tracing.NoTracing(stock)


_FLOW = _names.CONTROL_FLOW

TABLE = PatchTable(
    "JAX",
    _names.NAMES,
    (
        _allowed_in_control_flow(_effects.CallEffect),
        _allowed_in_control_flow(_effects.OrderedCallEffect),
        _rule(
            _BATCHERS,
            lax.cond_p,
            _control_flow.batched_branches,
            "jax.vmap would run a call for elements that do not take its branch.",
            _FLOW,
        ),
        _rule(
            _BATCHERS,
            lax.while_p,
            _control_flow.batched_loop,
            "jax.vmap would run a call for elements that have left the loop.",
            _FLOW,
        ),
        _rule(
            _PARTIAL_EVAL,
            lax.while_p,
            _control_flow.linearized_loop,
            "The derivative of a loop would make its calls once more.",
            _FLOW,
        ),
        _attribute(
            "jax._src.lax.control_flow.loops",
            "_scan_known_hoisting",
            _control_flow.scan_without_hoisting,
            "The derivative of a scan would make a call once for all iterations.",
            _FLOW,
        ),
        _rule(
            _LOWERINGS,
            lax.while_p,
            _control_flow.loop_with_its_condition,
            "XLA would leave out calls in the condition of a loop of known length.",
            _FLOW,
        ),
        *(
            _rule(
                _LOWERINGS,
                reducer,
                functools.partial(_reducers.guarded, reducer),
                "XLA would end the process where a reducer makes a call.",
                _names.REDUCERS,
            )
            for reducer in _reducers.REDUCERS
        ),
        _attribute(
            "jax._src.interpreters.pxla",
            "UnloadedMeshExecutable.build_unsafe_call",
            _waiting,
            "Programs with calls that run JAX programs could wait for each other forever.",
            _names.EXECUTION,
        ),
        _attribute(
            "jax._src.compiler",
            "backend_compile_and_load",
            _overlap.overlapping,
            "A program would wait for each call of a pure function before it goes on.",
            _names.OVERLAP,
        ),
        _attribute(
            "jax._src.config",
            "no_tracing",
            _no_tracing,
            "JAX would take a compiled program with calls for one that is to be traced.",
            _names.NO_TRACING,
        ),
    ),
)


def hide_frames() -> None:
    """Has JAX leave the frames of wrapped rules out of source places and of tracebacks, as its own.

    Without it programs without calls would be compiled with other source places.
    """
    if not _names.has(_names.SOURCE_PLACES):
        return
    from jax._src import source_info_util, traceback_util

    for module in ("_control_flow", "_execution", "_joint", "_no_tracing", "_overlap", "_reducers"):
        file = os.path.join(os.path.dirname(__file__), f"{module}.py")
        source_info_util.register_exclusion(file)
        traceback_util.register_exclusion(file)

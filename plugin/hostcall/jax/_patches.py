"""All objects of JAX that hostcall replaces, in one table.

A rule that replaces one of JAX's passes programs without host calls straight to JAX's rule.
`hostcall.disable()` puts JAX's own objects back. `_rules` and `_primitive` register the rules of
hostcall's primitive and the properties of its effects under hostcall's own keys. These stay when
hostcall is disabled, because no other program can reach them.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from jax import lax
from jax._src import effects as _jax_effects

from hostcall.jax import _compilation, _control_flow, _drift, _names, _primitive
from hostcall_runtime._patching import Patch, PatchTable, Replacement

_BATCHERS = ("jax.interpreters.batching", "fancy_primitive_batchers")
_PARTIAL_EVAL = ("jax.interpreters.partial_eval", "custom_partial_eval_rules")
_LOWERINGS = ("jax._src.interpreters.mlir", "_lowerings")


def _of(module: str, path: str) -> Any:
    names = path.split(".") if path else ()
    return functools.reduce(getattr, names, importlib.import_module(module))


def _patch(
    module: str,
    path: str,
    wrap: Callable[[Any], Any],
    *tried: str,
    primitive: Any = None,
    why: str,
    feature: str,
) -> Patch:
    """Return the patch of an attribute of a module, or of a class in it."""
    # With a primitive it is that of the primitive's rule in a registry. `wrap` makes hostcall's
    # object from JAX's, a function with one of the `tried` lists of parameters: see
    # `_drift.misfit`.
    target = f"{module}.{path}" if primitive is None else f"{module}.{path}[{primitive}]"

    def read() -> object:
        found = _of(module, path)
        return found if primitive is None else found[primitive]

    def write(value: object) -> None:
        if primitive is None:
            owner, _, name = path.rpartition(".")
            setattr(_of(module, owner), name, value)
        else:
            _of(module, path)[primitive] = value

    def misfit() -> str:
        return _drift.misfit(target, read(), wrap, tried)

    ours = Replacement(read, write, lambda stock, _: wrap(stock))
    return ours.patch(target, why, feature, misfit)


def _allowed_in_control_flow(kind: type) -> Patch:
    """Return a patch that makes JAX accept an effect in branches and loops while installed."""
    allowed = _jax_effects.control_flow_allowed_effects
    return Patch(
        f"jax._src.effects.control_flow_allowed_effects: {kind.__name__}",
        lambda: allowed.add_type(kind),
        lambda: allowed._effect_types.discard(kind),
        lambda: kind in allowed._effect_types,
        "JAX allows calls with side effects in branches and loops.",
        _names.CONTROL_FLOW,
    )


def _waiting(stock: Any) -> object:
    from hostcall.jax import _execution  # its class derives from one of JAX's

    return _execution.waiting(stock)


def _no_tracing(stock: object) -> object:
    from hostcall.jax import _execution  # as above

    return _execution.NoTracing(stock)


_FLOW = _names.CONTROL_FLOW

_WITH_WRAPPERS = "_compilation _control_flow _execution _rules _sharding"

TABLE = PatchTable(
    "JAX",
    _names.NAMES,
    (
        *map(_allowed_in_control_flow, _primitive.KINDS),
        _patch(
            *_BATCHERS,
            _control_flow.batched_branches,
            "axis_data args dims branches ...",
            primitive=lax.cond_p,
            why="jax.vmap would run a call for elements that do not take its branch.",
            feature=_FLOW,
        ),
        _patch(
            *_BATCHERS,
            _control_flow.batched_loop,
            "axis_data args dims cond_nconsts cond_jaxpr body_nconsts body_jaxpr",
            primitive=lax.while_p,
            why="jax.vmap would run a call for elements that have left the loop.",
            feature=_FLOW,
        ),
        _patch(
            *_PARTIAL_EVAL,
            _control_flow.linearized_loop,
            "trace tracers cond_nconsts cond_jaxpr body_nconsts body_jaxpr",
            primitive=lax.while_p,
            why="The derivative of a loop would make its calls once more.",
            feature=_FLOW,
        ),
        _patch(
            "jax._src.lax.control_flow.loops",
            "_scan_known_hoisting",
            _control_flow.scan_without_hoisting,
            "jaxpr_known known_consts num_res",
            "jaxpr_known known_consts num_ures num_sres",
            why="The derivative of a scan would make a call once for all iterations.",
            feature=_FLOW,
        ),
        _patch(
            *_LOWERINGS,
            _control_flow.loop_with_its_condition,
            "ctx args cond_jaxpr body_jaxpr cond_nconsts body_nconsts",
            primitive=lax.while_p,
            why="XLA would leave out calls in the condition of a loop of known length.",
            feature=_FLOW,
        ),
        *(
            _patch(
                *_LOWERINGS,
                functools.partial(_control_flow.guarded, reducer),
                "ctx ...",
                primitive=reducer,
                why="XLA would end the process where a reducer makes a call.",
                feature=_names.REDUCERS,
            )
            for reducer in _control_flow.REDUCERS
        ),
        _patch(
            "jax._src.interpreters.pxla",
            "UnloadedMeshExecutable.build_unsafe_call",
            _waiting,
            "self",
            why="Programs with calls that run JAX programs could wait for each other forever.",
            feature=_names.EXECUTION,
        ),
        _patch(
            "jax._src.compiler",
            "backend_compile_and_load",
            _compilation.overlapping,
            "backend module executable_devices options host_callbacks",
            why="A program would wait for each call of a pure function before it goes on.",
            feature=_names.OVERLAP,
        ),
        _patch(
            "jax._src.config",
            "no_tracing",
            _no_tracing,
            why="JAX would take a compiled program with calls for one that is to be traced.",
            feature=_names.NO_TRACING,
        ),
        _patch(
            "jax._src.compiler",
            "_compile_and_write_cache",
            _compilation.unwritten,
            "backend computation executable_devices compile_options host_callbacks module_name "
            "cache_key",
            why="The cache on disk would get programs that no other process can use.",
            feature=_names.DISK,
        ),
    ),
)


def check() -> None:
    """Switch off the features whose patches do not fit the installed JAX."""
    for patch in TABLE.patches:
        if _names.has(patch.feature) and (misfit := patch.misfit()):
            _names.leave_out(patch.feature, misfit)


def hide_frames() -> None:
    """Make JAX hide the frames of wrapped rules, so that compiled programs stay the same."""
    if not _names.has(_names.SOURCE_PLACES):
        return
    from jax._src import source_info_util, traceback_util

    for module in _WITH_WRAPPERS.split():
        file = os.path.join(os.path.dirname(__file__), f"{module}.py")
        source_info_util.register_exclusion(file)
        traceback_util.register_exclusion(file)

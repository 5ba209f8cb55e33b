"""Every private name of JAX that hostcall uses, and the features that need them.

JAX promises nothing about `jax._src` and `jax.interpreters`. This table is the first test of a new
JAX release: it shows the names that the release lacks. hostcall switches off a feature that lacks a
name. Without the names of `CALLS` there is no `hostcall.jax`.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterable

import jax

from hostcall_runtime._patching import INSTALL_JAX, Name, untested_jax

CALLS = "hostcall.jax.call"
VMAP = "jax.vmap of calls"
CONTROL_FLOW = "calls with side effects in branches and loops"
REMATERIALIZATION = "fire-and-forget calls under jax.checkpoint"
REDUCERS = "errors for calls in reducers"
EXECUTION = "calls that run JAX programs"
EAGER = "quick calls outside of programs"
FAILED_TOKENS = "ordered calls on a GPU after one that has failed"
OVERLAP = "calls that overlap"
DISK = "programs in JAX's cache on disk"
NO_TRACING = "programs with calls under jax.no_tracing"
SETTINGS = "settings of threads"
DERIVATIVES = "errors for derivatives of calls"
TRACING = "callbacks without arguments"
TO_TF = "hostcall.jax.to_tf"
JAX_CALLBACKS = "JAX's own callbacks in hostcall.jax.to_tf"
SOURCE_PLACES = "source places and tracebacks"
PROFILES = "calls in traces of JAX's profiler"

# The oldest version whose MLIR raises Python errors for constants of complex numbers.
_OLDEST = (0, 8)

# The consequence for each feature that lacks a name.
_WITHOUT = {
    CALLS: "`import hostcall.jax` raises an ImportError; TensorFlow's side of hostcall works.",
    VMAP: "jax.vmap of a call raises a NotImplementedError.",
    CONTROL_FLOW: "JAX refuses calls without pure=True in branches and loops.",
    REMATERIALIZATION: "jax.checkpoint refuses calls with wait=False where it is differentiated.",
    REDUCERS: "XLA ends the process where a reducer calls a jitted function that makes a call.",
    EXECUTION: "many calls at once that run JAX programs may wait for each other forever.",
    EAGER: "a call outside of programs takes three times as long.",
    FAILED_TOKENS: "each later one of its thread raises the same error, before JAX 0.12.",
    OVERLAP: "a program waits for each call of a pure function before it goes on.",
    DISK: "JAX's cache on disk grows by programs that no other process can use.",
    NO_TRACING: "jax.no_tracing refuses programs with calls, also where they have been traced.",
    SETTINGS: "a call on another thread sees jax.enable_x64 and the like as the process has them.",
    DERIVATIVES: "JAX's own message says that a call has no derivative.",
    TRACING: "a callback without arguments is always called as TensorFlow's.",
    TO_TF: "hostcall.jax.to_tf raises a NotImplementedError.",
    JAX_CALLBACKS: "hostcall.jax.to_tf takes functions with calls of hostcall's only.",
    SOURCE_PLACES: "source places and tracebacks of JAX programs show frames of hostcall's.",
    PROFILES: "traces of jax.profiler do not name the Python functions that programs call.",
}

_NAMES: dict[str, dict[str, str]] = {
    CALLS: {
        "jax._src.callback": "SdyArray SdyArrayList _callback_op_sharding",
        "jax._src.core": "Primitive abstract_token jaxprs_in_params",
        "jax._src.dispatch": "apply_primitive prim_requires_devices_during_lowering",
        "jax._src.effects": "Effect control_flow_allowed_effects "
        "custom_derivatives_allowed_effects lowerable_effects.add_type ordered_effects "
        "partial_eval_kept_effects shardable_ordered_effects",
        "jax._src.ffi": "build_ffi_lowering_function",
        "jax._src.interpreters.mlir": "ModuleContext.add_host_callback _platforms_for_eqn "
        "set_sharding",
        "jax._src.lib.mlir.dialects": "hlo.convert",
        "jax._src.lib.mlir": "ir.DenseI64ArrayAttr ir.InsertionPoint ir.IntegerAttr ir.IntegerType",
        "jax.interpreters.mlir": "SPMDAxisContext ShardingContext TokenSet aval_to_ir_type "
        "lower_fun register_lowering",
    },
    VMAP: {"jax._src.ffi": "ffi_batching_rule", "jax.interpreters.batching": "primitive_batchers"},
    CONTROL_FLOW: {
        "jax._src.core": "jaxpr_as_fun",
        "jax._src.effects": "control_flow_allowed_effects._effect_types",
        "jax._src.interpreters.batching": "batch_jaxpr",
        "jax._src.interpreters.mlir": "_lowerings",
        "jax._src.lax.control_flow.loops": "_scan_known_hoisting",
        "jax.interpreters.batching": "fancy_primitive_batchers",
        "jax.interpreters.partial_eval": "custom_partial_eval_rules",
    },
    REMATERIALIZATION: {
        "jax._src.effects": "remat_allowed_effects.add_type",
        "jax.interpreters.partial_eval": "partial_eval_jaxpr_custom_rules",
    },
    SETTINGS: {
        "jax._src.config": "config_ext.Config.get_local config_ext.Config.set_local "
        "config_ext.Config.swap_local config_ext.unset trace_context"
    },
    REDUCERS: {"jax._src.interpreters.mlir": "_lowerings"},
    FAILED_TOKENS: {"jax._src.dispatch": "runtime_tokens.current_tokens"},
    EAGER: {
        "jax._src.interpreters.pxla": "MeshExecutable.unsafe_call",
        "jax._src.stages": "Compiled._executable",
        "jax._src.util": "cache",
    },
    EXECUTION: {
        "jax._src.interpreters.pxla": "ExecuteReplicated._add_tokens_to_inputs "
        "ExecuteReplicated._handle_token_bufs UnloadedMeshExecutable.build_unsafe_call",
        "jax._src.lib": "_jax.get_execution_stream_id _jax.set_execution_stream_id",
    },
    OVERLAP: {"jax._src.compiler": "backend_compile_and_load"},
    DISK: {"jax._src.compiler": "_compile_and_write_cache backend_compile_and_load"},
    NO_TRACING: {"jax._src.config": "no_tracing", "jax._src.pjit": "_infer_params"},
    DERIVATIVES: {"jax.interpreters.ad": "primitive_jvps primitive_transposes"},
    TRACING: {"jax._src.core": "trace_state_clean"},
    TO_TF: {
        "jax._src.export._export": "export",
        "jax.experimental.jax2tf.jax2tf": "_run_exported_as_tf _tfval_to_tensor_jax_dtype",
    },
    JAX_CALLBACKS: {
        "jax._src.callback": "_IOEffect _OrderedIOEffect io_callback_impl io_callback_p "
        "pure_callback_impl pure_callback_p",
        "jax._src.debugging": "debug_callback_impl debug_callback_p debug_effect debug_print_impl "
        "debug_print_p ordered_debug_effect",
        "jax._src.source_info_util": "user_frame",
    },
    SOURCE_PLACES: {
        "jax._src.source_info_util": "register_exclusion",
        "jax._src.traceback_util": "register_exclusion",
    },
    PROFILES: {"jax.profiler": "TraceAnnotation.is_enabled"},
}

NAMES = tuple(
    Name(module, attribute, feature, _WITHOUT[feature])
    for feature, modules in _NAMES.items()
    for module, attributes in modules.items()
    for attribute in attributes.split()
)

# These features are for TensorFlow's programs. They are checked once TensorFlow is imported,
# because some of the names are in jax2tf, which imports it.
_BRIDGES = (TO_TF, JAX_CALLBACKS)

_misfits: dict[str, str] = {}  # features whose patches do not fit, each with the first misfit


@functools.cache
def _missing(feature: str) -> list[Name]:
    return [name for name in NAMES if name.feature == feature and not name.exists()]


def check() -> None:
    """Warn of the features that are off because the installed JAX lacks names that they need."""
    if jax.__version_info__ < _OLDEST:
        raise ImportError(
            f"hostcall.jax needs JAX 0.8 or later, and this is {jax.__version__}: before, Python "
            "that reads the constants of a program may end the process. Install a later version: "
            f"{INSTALL_JAX}. TensorFlow's side of hostcall works without it.",
            name="jax",
        )
    lost = _missing(CALLS)
    if lost:
        raise ImportError(
            f"hostcall.jax does not work with JAX {jax.__version__}, which has no {_listed(lost)}. "
            f"Install a version that it works with: {INSTALL_JAX}. TensorFlow's side of "
            "hostcall works without it.",
            name=lost[0].module,
        )
    if said := untested_jax(jax.__version__):
        warnings.warn(said, RuntimeWarning, stacklevel=3)
    _warn(feature for feature in _NAMES if feature not in _BRIDGES)
    if "tensorflow" in sys.modules:
        check_bridges()


@functools.cache
def check_bridges() -> None:
    """Warn likewise of the features that need TensorFlow."""
    _warn(_BRIDGES)


def _warn(features: Iterable[str], stacklevel: int = 4) -> None:
    for feature in features:
        if not has(feature):
            warnings.warn(_message(feature), RuntimeWarning, stacklevel=stacklevel)


def leave_out(feature: str, misfit: str) -> None:
    """Switch off a feature for a misfit, as in `_patching.Patch`, and warn of it."""
    if has(feature):
        _misfits[feature] = misfit
        _warn([feature], stacklevel=6)  # the code that imports hostcall.jax


def has(feature: str) -> bool:
    """Return whether the installed JAX has all that a feature needs, as hostcall expects it."""
    return not _missing(feature) and feature not in _misfits


def require(feature: str) -> None:
    """Raise a NotImplementedError that names the part JAX lacks if a feature is off."""
    if not has(feature):
        raise NotImplementedError(_message(feature))


def _message(feature: str) -> str:
    lost = _missing(feature)
    found = f"no {_listed(lost)}" if lost else _misfits[feature]
    return (
        f"hostcall.jax: JAX {jax.__version__} has {found}, which hostcall needs for this: "
        f"{feature}. Without it, {_WITHOUT[feature]} Install a version of JAX that hostcall works "
        f"with: {INSTALL_JAX}."
    )


def _listed(names: list[Name]) -> str:
    return ", ".join(map(str, names))

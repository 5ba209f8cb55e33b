"""The parts that hostcall installs into TensorFlow, and the table of the patches there."""

from __future__ import annotations

import os

from hostcall._compiler import announcements, kernel_hook, passes
from hostcall._compiler.clusters import host_calls
from hostcall._compiler.one_program import host_regions, lowering
from hostcall._functions import source_location
from hostcall._ops import lookup, settings, stock_messages, tape_residuals
from hostcall._ops.emit import (
    captures,
    gradients,
    missing_gradients,
    repeated_calls,
    script_ops,
    vectorizing,
)
from hostcall._replay import calls
from hostcall._saved import decoding, writing
from hostcall._tf import eager_execution, features, parallel_for, patches, token_registry
from hostcall_runtime import _errors, _library, _runs, prepared
from hostcall_runtime._patching import Patch, PatchTable

_installed = False


def _on() -> None:
    tape_residuals.refuse_no_longer()
    _library.load("hostcall._tensorflow").set_enabled(True)


def _off() -> None:
    tape_residuals.refuse_eager_calls()
    _library.load("hostcall._tensorflow").set_enabled(False)


def _prepare() -> None:
    """Install, once in a process, the parts that TensorFlow cannot remove: see `PERMANENT`."""
    global _installed
    NOTE.uninstall()
    if _installed:
        return
    features.warn_of_missing(features.ALL)
    runtime, bindings = prepared(), _library.load("hostcall._tensorflow")
    runtime.install(bindings.host_api())
    bindings.install(runtime.api())
    bindings.set_hooks(
        lower=_errors.with_interrupts(lowering.lower),
        evaluate=_errors.with_interrupts(lowering.evaluate),
        rewrite=_errors.with_interrupts(kernel_hook.rewrite_for_kernel),
        announce=announcements.tell,
        missing_kernels=_errors.with_interrupts(kernel_hook.find_missing_kernels),
        plain=_errors.with_interrupts(kernel_hook.plain_for_kernel),
        tell_outgrown=_errors.with_interrupts(announcements.warn_outgrown),
        shapes_in_region=_errors.with_interrupts(host_regions.infer_results),
    )
    bindings.set_ops_at_risk(sorted(passes.EXAMINED))
    settings.tell(bindings)
    bindings.set_refusal(host_calls.refusal)
    bindings.set_token_on_host(_errors.with_interrupts(host_calls.token_on_host))
    bindings.set_recording(*eager_execution.recording_functions)
    bindings.set_table(eager_execution.tape_cache)
    for target, handler in runtime.handlers().items():
        bindings.register_handler(handler, target)
    bindings.register_handler(runtime.cuda_handler(), "hostcall", "CUDA")
    bindings.set_starters(_runs.runs, _runs.captures, _runs.begin)
    bindings.register_own_handlers()
    bindings.install_kernel_creator()
    calls.add(eager_execution.wait_for_ops)
    token_registry.renew_nonce()
    # A forked child counts on from the same number, so it needs another nonce.
    os.register_at_fork(after_in_child=token_registry.renew_nonce)
    _installed = True


_MAKES_OPS = "It makes the ops: nothing public stands between the public functions and the op."


def _all() -> list[Patch]:
    run, recorded = tape_residuals.owners.run, tape_residuals.may_be_recorded
    return [
        patches.tokens(),
        *(
            patches.around(features.script_ops, name, features.SCRIPT_OPS, _MAKES_OPS, ours)
            for name, ours in (
                ("_internal_py_func", script_ops.internal_py_func),
                ("py_func_common", script_ops.py_func_common),
            )
        ),
        patches.py_function_gradient(gradients.gradient),
        *patches.missing_gradients(missing_gradients.gradient),
        eager_execution.patch(),
        patches.trace_hook(script_ops.finish),
        patches.frames_left_out(*source_location.directories_of("hostcall", "hostcall_runtime")),
        patches.function_calls(
            lambda: settings.current.uncompilable != settings.ERROR, repeated_calls.RepeatedCalls
        ),
        *parallel_for.conversions(vectorizing.convert),
        parallel_for.effects(vectorizing.has_effect),
        patches.removed_functions(),
        patches.higher_orders(),
        patches.calls(features.ConcreteFunction, "_call_flat", run, recorded),
        patches.calls(features.Session, "run", run, recorded),
        patches.forward_calls(tape_residuals.attach),
        patches.new_errors(stock_messages.completed),
        patches.raised(features.execute, "execute"),
        patches.raised(features.BaseSession, "run"),
        patches.context_handle(),
        patches.resolving(decoding.resolve),
        patches.making_functions(writing.name_traced_functions, captures.note_constants),
        patches.extending_sessions(writing.name_new_functions),
        patches.directories(),
        patches.saving(writing.name_in_saved_model),
        patches.saving_of_version_1(writing.name_in_saved_model),
        *patches.writing_graphs(writing.named_silently),
        patches.loading(decoding.check),
        patches.importing(lookup.own_callbacks),
        patches.lifting(lookup.own_callbacks),
    ]


TABLE = PatchTable("TensorFlow", features.NAMES, tuple(_all()), _prepare, _on, _off)

# The one patch of a process with `HOSTCALL_DISABLE`: its errors name the variable.
NOTE = patches.noted_errors(stock_messages.note_switch)

# The parts that stay when hostcall is disabled, and the reason why they change nothing then.
PERMANENT = {
    "the creator of kernels for compiled functions": (
        "TensorFlow deletes the one that it had. Ours passes everything on to TensorFlow's own."
    ),
    "the XLA kernels of the script ops": (
        "TensorFlow cannot unregister kernels. Ours say that hostcall is disabled."
    ),
    "the host kernels of the script ops with a label of our own": (
        "TensorFlow cannot unregister kernels. Only graphs that hostcall has partitioned name them."
    ),
    'the custom call targets "hostcall" and "hostcall_native"': (
        "XLA cannot unregister targets. Programs that were compiled before go on to call them."
    ),
    "the graph pass for functions that TensorFlow clusters by itself": (
        "TensorFlow cannot unregister passes. Ours leaves every graph as it is."
    ),
    "the gradients of tf.custom_gradient that hostcall has made": (
        "They belong to ops of graphs that were traced before, and end with these."
    ),
}

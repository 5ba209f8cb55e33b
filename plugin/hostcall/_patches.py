"""The table of everything that hostcall replaces in TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import hostcall_runtime
from hostcall import _installation
from hostcall._callbacks import copied_graphs, settings, tape_residuals
from hostcall._frontend import gradients, script_ops, tracing, vectorizing
from hostcall._saving import checking, resolving, traced, writing
from hostcall._tf import (
    features,
    module_gradient,
    names,
    parallel_for,
    patches,
    replacements,
    saved_model_patches,
    token_registry,
    variable_creation,
)
from hostcall_runtime import _errors, _library
from hostcall_runtime._patching import Patch, PatchTable


def _directory_of(file: str) -> str:
    return os.path.dirname(os.path.abspath(file)) + os.sep


def _interrupt(error: Any) -> BaseException | None:
    return _errors.interrupt_behind(error.message)


def _all() -> list[Patch]:
    run, recorded = tape_residuals.owners.run, tape_residuals.may_be_recorded
    return [
        patches.tokens(token_registry.nonce),
        *replacements.functions(
            names.script_ops,
            {
                "_internal_py_func": script_ops.internal_py_func,
                "py_func_common": script_ops.py_func_common,
            },
            script_ops.stock,
            features.SCRIPT_OPS,
            "It makes the ops: nothing public stands between the public functions and the op.",
        ),
        gradients.patch(),
        module_gradient.patch(),
        patches.trace_hook(tracing.finish),
        patches.frames_left_out(*map(_directory_of, (__file__, hostcall_runtime.__file__))),
        variable_creation.first_calls(lambda: settings.uncompilable() != settings.ERROR),
        *parallel_for.conversions(vectorizing.convert),
        parallel_for.effects(vectorizing.has_effect),
        patches.removed_functions(),
        patches.higher_orders(),
        patches.calls(names.ConcreteFunction, "_call_flat", run, recorded),
        patches.calls(names.Session, "run", run, recorded),
        patches.forward_calls(tape_residuals.attach),
        patches.new_errors(_errors.hand_over),
        patches.raised(names.execute, "execute", _interrupt),
        patches.raised(names.BaseSession, "run", _interrupt),
        patches.context_handle(lambda: _library.load("hostcall._tensorflow").context_handle),
        saved_model_patches.resolving(resolving.resolve),
        saved_model_patches.making_functions(traced.name_functions),
        saved_model_patches.extending_sessions(traced.name_new_functions),
        saved_model_patches.directories(),
        saved_model_patches.saving(writing.name_in_saved_model),
        saved_model_patches.saving_of_version_1(writing.name_in_saved_model),
        *saved_model_patches.writing_graphs(writing.named_silently),
        saved_model_patches.loading(checking.check),
        patches.importing(copied_graphs.own_callbacks),
        patches.lifting(copied_graphs.own_callbacks),
    ]


TABLE = PatchTable("TensorFlow", names.NAMES, _all(), _installation.SWITCH)

# What stays when hostcall is disabled, and why it changes nothing then.
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

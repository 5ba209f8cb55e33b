"""What switching hostcall on and off does in TensorFlow beside the patches."""

from __future__ import annotations

import os

from hostcall._callbacks import settings, tape_residuals
from hostcall._compiler import announcements, kernel_hook, lowering, risks
from hostcall._compiler.partition import host_errors
from hostcall._compiler.regions import callback_shapes
from hostcall._functions.native import entries
from hostcall._recording import settling
from hostcall._tf import eager_execution, features, gradient_tapes, token_registry
from hostcall_runtime import _errors, _library, _starters, prepared
from hostcall_runtime._patching import Switch

_installed = False


def _on() -> None:
    tape_residuals.refuse_no_longer()
    _library.load("hostcall._tensorflow").set_enabled(True)


def _off() -> None:
    tape_residuals.refuse_eager_calls()
    _library.load("hostcall._tensorflow").set_enabled(False)


def _prepare() -> None:
    """Once in a process: what TensorFlow cannot be made to forget (`_patches.PERMANENT`)."""
    global _installed
    if _installed:
        return
    features.warn_of_missing(features.ALL)
    runtime, bindings = prepared(), _library.load("hostcall._tensorflow")
    bindings.set_hooks(
        _errors.with_interrupts(lowering.lower),
        _errors.with_interrupts(lowering.evaluate),
        _errors.with_interrupts(kernel_hook.rewrite_for_kernel),
        announcements.tell,
    )
    bindings.set_missing_kernels_hook(_errors.with_interrupts(kernel_hook.find_missing_kernels))
    bindings.set_region_hook(_errors.with_interrupts(callback_shapes.of_results))
    bindings.set_uncompiled_hooks(
        _errors.with_interrupts(kernel_hook.plain_for_kernel),
        _errors.with_interrupts(announcements.of_outgrown),
    )
    bindings.set_max_compilations(settings.max_compilations())
    bindings.set_checks_assertions(settings.assertions())
    bindings.set_ops_at_risk(sorted(risks.KINDS))
    bindings.set_checks_sizes(settings.dynamic_sizes() == settings.CHECKED)
    bindings.set_pool(runtime.pool())
    bindings.set_refusal(host_errors.refusal)
    bindings.set_recording(*gradient_tapes.recording_functions)
    bindings.set_memory_api(runtime.memory_api())
    runtime.set_tensor_api(bindings.eager_tensors())
    runtime.set_profiler_api(bindings.profiler())
    runtime.set_buffer_provider_api(bindings.buffer_provider())
    runtime.set_run_finder(bindings.run_finder())
    bindings.set_table(gradient_tapes.tape_cache)
    bindings.register_handler(runtime.handler(), "hostcall")
    bindings.register_handler(runtime.cuda_handler(), "hostcall", "CUDA")
    bindings.register_handler(runtime.native_handler(), entries.TARGET)
    for target, handler in runtime.early_handlers().items():
        bindings.register_handler(handler, target)
    bindings.set_early_calls(runtime.early_calls())
    bindings.set_interrupts(runtime.interrupts())
    bindings.set_starters(_starters.begin, _starters.runs, _starters.under_way)
    bindings.register_region_handler()
    bindings.install_kernel_creator()
    settling.add(eager_execution.wait_for_ops)
    token_registry.renew_nonce()
    # It counts on from the same number.
    os.register_at_fork(after_in_child=token_registry.renew_nonce)
    _installed = True


SWITCH = Switch(_prepare, _on, _off)

"""Switching hostcall on and off."""

from __future__ import annotations

import os

from hostcall._callbacks import copied_graphs, tape_residuals
from hostcall._compiler import kernel_hook, lowering
from hostcall._compiler.partition import host_errors
from hostcall._frontend import gradients, script_ops, tracing
from hostcall._tf import gradient_tapes, patches
from hostcall_runtime import _errors, _library, prepared

_installed = False
_enabled = False


def enable() -> None:
    """Switches hostcall on: script ops work in functions with `jit_compile=True`.

    `import hostcall` does it, unless the environment variable `HOSTCALL_DISABLE` is set to 1.
    Enabling twice is no error.
    """
    global _enabled
    _install()
    patches.add_nonce_to_tokens()
    script_ops.install()
    gradients.install()
    patches.add_trace_hook(tracing.finish)
    _library.load("hostcall._tensorflow").set_enabled(True)
    _enabled = True


def disable() -> None:
    """Switches hostcall off: from now on TensorFlow behaves as without it.

    Programs that are compiled already go on to work, and graphs that were traced before keep their
    gradients. Script ops in functions that are compiled
    later fail, with an error that says that hostcall is disabled. Disabling twice is no error.
    """
    global _enabled
    if not _installed:
        return
    patches.leave_nonce_out_of_tokens()
    script_ops.uninstall()
    patches.remove_trace_hook(tracing.finish)
    _library.load("hostcall._tensorflow").set_enabled(False)
    _enabled = False


def is_enabled() -> bool:
    """Whether hostcall is switched on."""
    return _enabled


def enabled_by_environment() -> bool:
    """False where `HOSTCALL_DISABLE` is set to anything but 0 or nothing."""
    return os.environ.get("HOSTCALL_DISABLE", "0") in ("", "0")


def _install() -> None:
    """Once in a process: what TensorFlow cannot be made to forget."""
    global _installed
    if _installed:
        return
    runtime, bindings = prepared(), _library.load("hostcall._tensorflow")
    bindings.set_hooks(
        _errors.with_interrupts(lowering.lower),
        _errors.with_interrupts(lowering.evaluate),
        _errors.with_interrupts(kernel_hook.rewrite_for_kernel),
    )
    bindings.set_pool(runtime.pool())
    bindings.set_refusal(host_errors.refusal)
    bindings.set_recording(*gradient_tapes.recording_functions)
    runtime.set_tensor_api(bindings.eager_tensors())
    runtime.set_profiler_api(bindings.profiler())
    runtime.set_lender_api(bindings.lender())
    bindings.set_table(gradient_tapes.tape_cache)
    bindings.register_handler(runtime.handler(), "hostcall")
    bindings.register_handler(runtime.native_handler(), "hostcall_native")
    bindings.install_kernel_creator()
    patches.renew_nonce()
    os.register_at_fork(after_in_child=patches.renew_nonce)  # it counts on from the same number
    patches.leave_out_frames_of(os.path.dirname(os.path.abspath(__file__)))
    patches.remove_owned_functions()
    patches.watch_higher_orders()
    patches.around_calls(tape_residuals.holders.run, tape_residuals.may_be_recorded)
    patches.on_forward_call(tape_residuals.adopt)
    patches.on_error(_errors.hand_over)
    patches.raise_instead(lambda error: _errors.interrupt_behind(error.message))
    patches.on_saved(copied_graphs.pin_callbacks)
    patches.on_copied(copied_graphs.own_callbacks)
    _installed = True

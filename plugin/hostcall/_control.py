"""Switching hostcall on and off."""

from __future__ import annotations

import os

from hostcall import (
    _gradients,
    _host_errors,
    _lowering,
    _rewriting,
    _saved,
    _script_ops,
    _states,
    _tracing,
)
from hostcall import _tf_private as private
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
    private.add_nonce_to_tokens()
    _script_ops.install()
    _gradients.install()
    private.add_trace_hook(_tracing.finish)
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
    private.leave_nonce_out_of_tokens()
    _script_ops.uninstall()
    private.remove_trace_hook(_tracing.finish)
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
    runtime, glue = prepared(), _library.load("hostcall._tensorflow")
    glue.set_hooks(
        _errors.with_interrupts(_lowering.lower),
        _errors.with_interrupts(_lowering.evaluate),
        _errors.with_interrupts(_rewriting.rewrite_for_kernel),
    )
    glue.set_pool(runtime.pool())
    glue.set_refusal(_host_errors.refusal)
    glue.set_recording(*private.recording_functions)
    runtime.set_tensor_api(glue.eager_tensors())
    runtime.set_profiler_api(glue.profiler())
    runtime.set_lender_api(glue.lender())
    glue.set_table(private.tape_cache)
    glue.register_handler(runtime.handler(), "hostcall")
    glue.register_handler(runtime.native_handler(), "hostcall_native")
    glue.install_kernel_creator()
    private.renew_nonce()
    os.register_at_fork(after_in_child=private.renew_nonce)  # it counts on from the same number
    private.leave_out_frames_of(os.path.dirname(os.path.abspath(__file__)))
    private.remove_owned_functions()
    private.watch_higher_orders()
    private.around_calls(_states.holders.run, _states.may_be_recorded)
    private.on_forward_call(_states.adopt)
    private.on_error(_errors.hand_over)
    private.raise_instead(lambda error: _errors.interrupt_behind(error.message))
    private.on_saved(_saved.pin_callbacks)
    private.on_copied(_saved.own_callbacks)
    _installed = True

"""Switching hostcall on and off."""

from __future__ import annotations

import os
import warnings

from hostcall import _patches
from hostcall._callbacks import settings, tape_residuals
from hostcall._compiler import announcements, kernel_hook, lowering
from hostcall._compiler.partition import host_errors
from hostcall._compiler.regions import callback_shapes
from hostcall._tf import features, gradient_tapes, token_registry
from hostcall_runtime import _errors, _library, _patching, prepared

_patching.add(_patches.TABLE)
_installed = False
_enabled = False


def enable() -> None:
    """Switches hostcall on: script ops work in functions with `jit_compile=True`.

    `import hostcall` does it, unless the environment variable `HOSTCALL_DISABLE` is set to 1.
    Enabling twice is no error.

    Raises:
      ImportError: when the installed TensorFlow lacks a name without which script ops cannot be
        compiled. Of names that other features need, a warning tells.

    Examples:
      >>> hostcall.disable()
      >>> hostcall.enable()
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(np.sin, [x], tf.TensorSpec([], tf.float32))
      >>> float(program(0.0))
      0.0
    """
    global _enabled
    _install()
    _patching.install_all()
    tape_residuals.refuse_no_longer()
    _library.load("hostcall._tensorflow").set_enabled(True)
    _enabled = True


def disable() -> None:
    """Switches hostcall off: from now on TensorFlow behaves as without it.

    Everything that hostcall has replaced in TensorFlow is TensorFlow's own again. Programs that are
    compiled already go on to work, and graphs that were traced before keep their gradients; each
    of their calls keeps what it needs until its gradient is computed once, the latest 256 calls at
    most. A tape that has recorded a py_function has to be asked for gradients before. Script ops in
    functions that are compiled later fail, with an error that says that hostcall is disabled.
    Disabling twice is no error.

    The same holds for JAX where hostcall.jax is loaded. `hostcall.jax.call` works in programs that
    are traced later, too; but JAX refuses calls with side effects in their branches and loops.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(np.sin, [x], tf.float32)
      >>> hostcall.disable()
      >>> try:
      ...     program(0.0)
      ... except tf.errors.InvalidArgumentError as error:
      ...     print(error.message.split(":")[0])
      hostcall is disabled
      >>> hostcall.enable()
    """
    global _enabled
    if not _installed:
        return
    _patching.uninstall_all()
    tape_residuals.refuse_eager_calls()
    _library.load("hostcall._tensorflow").set_enabled(False)
    _enabled = False


def enable_at_import() -> None:
    """Switches hostcall on, or warns where it cannot: a program that imports it runs on."""
    try:
        enable()
    except features.MissingNameError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)


def is_enabled() -> bool:
    """Whether hostcall is switched on."""
    return _enabled


def enabled_by_environment() -> bool:
    """False where `HOSTCALL_DISABLE` is set to anything but 0 or nothing."""
    return os.environ.get("HOSTCALL_DISABLE", "0") in ("", "0")


def _install() -> None:
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
    bindings.set_region_hook(_errors.with_interrupts(callback_shapes.of_results))
    bindings.set_uncompiled_hooks(
        _errors.with_interrupts(kernel_hook.plain_for_kernel),
        _errors.with_interrupts(announcements.of_outgrown),
    )
    bindings.set_max_compilations(settings.max_compilations())
    bindings.set_checks_assertions(settings.assertions())
    bindings.set_pool(runtime.pool())
    bindings.set_refusal(host_errors.refusal)
    bindings.set_recording(*gradient_tapes.recording_functions)
    runtime.set_tensor_api(bindings.eager_tensors())
    runtime.set_profiler_api(bindings.profiler())
    runtime.set_buffer_provider_api(bindings.buffer_provider())
    bindings.set_table(gradient_tapes.tape_cache)
    bindings.register_handler(runtime.handler(), "hostcall")
    bindings.register_handler(runtime.cuda_handler(), "hostcall", "CUDA")
    bindings.register_handler(runtime.native_handler(), "hostcall_native")
    for target, handler in runtime.early_handlers().items():
        bindings.register_handler(handler, target)
    bindings.set_early_calls(runtime.early_calls())
    bindings.register_region_handler()
    bindings.install_kernel_creator()
    token_registry.renew_nonce()
    # It counts on from the same number.
    os.register_at_fork(after_in_child=token_registry.renew_nonce)
    _installed = True

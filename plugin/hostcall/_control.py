"""Switching hostcall on and off, in the frameworks that are imported and in those to come."""

from __future__ import annotations

import os

from hostcall_runtime import _patching


def enable() -> None:
    """Switches hostcall on: script ops work in functions with `jit_compile=True`.

    `import hostcall` does it, unless the environment variable `HOSTCALL_DISABLE` is set to 1. Where
    TensorFlow is imported later, hostcall is switched on in it then. Enabling twice is no error.

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
    _patching.install_all()


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
    _patching.uninstall_all()


def is_enabled() -> bool:
    """Whether hostcall is switched on, in all frameworks that are imported."""
    return _patching.are_installed() and all(table.enabled for table in _patching.tables())


def enabled_by_environment() -> bool:
    """False where `HOSTCALL_DISABLE` is set to anything but 0 or nothing."""
    return os.environ.get("HOSTCALL_DISABLE", "0") in ("", "0")

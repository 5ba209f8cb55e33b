"""The switch that turns hostcall on and off in the frameworks that are imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from hostcall_runtime import _patching


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` after the first successful import of a module that is not yet imported."""
    # If `then` raises, the import raises the same error.
    sys.meta_path.insert(0, _Finder(name, then))


class _Finder(MetaPathFinder):
    """A finder of one module that calls `then` after the module is executed.

    It finds the module by the other finders. The module keeps the spec and the loader that it would
    have; for one import, that loader has a method of its own.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        # The finders before this one have been asked already.
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: object) -> None:
        execute: Callable[[ModuleType], None] = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then()

        vars(loader)["exec_module"] = exec_module


def enable() -> None:
    """Switch hostcall on: script ops work in functions with `jit_compile=True`.

    `import hostcall` does it, unless the environment variable `HOSTCALL_DISABLE` is set to 1. If
    TensorFlow is imported later, hostcall is switched on in it then. It may be enabled twice.

    Raises:
      ImportError: when the installed TensorFlow lacks a name without which script ops cannot be
        compiled. For names that other features need, hostcall only warns.

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
    """Switch hostcall off: from now on TensorFlow behaves as without it.

    hostcall puts back everything that it has replaced in TensorFlow. Programs that are compiled
    already still work. Graphs that were traced before keep their gradients: each of their calls
    keeps the values for its gradient until that is computed once, for the latest 256 calls at most.
    A tape that has recorded a py_function must compute its gradients before hostcall is disabled.
    Script ops in functions that are compiled later fail, with an error that says that hostcall is
    disabled. Disabling twice is not an error.

    The same holds for JAX if hostcall.jax is loaded. `hostcall.jax.call` also works in programs
    that are traced later; but JAX refuses calls with side effects in their branches and loops.

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
    """Return whether hostcall is switched on, in all frameworks that are imported."""
    return _patching.are_installed() and all(table.enabled for table in _patching.tables())


def enabled_by_environment() -> bool:
    """Return False if `HOSTCALL_DISABLE` is set to any text but "0" or "", else True."""
    return os.environ.get("HOSTCALL_DISABLE", "0") in ("", "0")

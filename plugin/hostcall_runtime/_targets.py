"""What compiled programs call, and the numbers by which they find it."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass(eq=False)
class Target:
    """What the runtime calls."""

    host_function: Callable[..., Any]
    title: str
    description: str = ""
    # For functions of tensors, most of which the runtime makes and reads itself;
    # here are what makes one of an array, and arrays of what the function has returned.
    to_tensor: Callable[[Any], Any] | None = None
    to_arrays: Callable[[Any], Any] | None = None
    # What made it, where that can be asked what the function is.
    origin: Any = None
    # TensorFlow's name of the op, and the lines of the user's that have led to it.
    node: str = ""
    definition: Callable[[], list[str]] = list


_targets: weakref.WeakValueDictionary[int, Target] = weakref.WeakValueDictionary()


def register(
    target: Any, name: str, takes_tensors: bool = False, label: str = "", **lending: bool
) -> int:
    """The runtime's number for an object, as long as that lives.

    Args:
      target: a Target.
      name: of the callback.
      takes_tensors: whether its function takes and returns EagerTensors.
      label: what profiles and `hostcall.stats` call it; the name if it is left out.
      **lending: `borrows`, `takes_out` and `lends`, as registry.h has them; False if left out.

    Raises:
      ValueError: when a living object has the name.
    """
    number: int = _runtime.register(target, name, takes_tensors, label, **lending)
    if isinstance(target, Target):
        _targets[number] = target
    weakref.finalize(target, _runtime.unregister, number).atexit = False
    return number


def target_of(number: int) -> Target | None:
    """The living target of a number, None where there is none."""
    return _targets.get(number)

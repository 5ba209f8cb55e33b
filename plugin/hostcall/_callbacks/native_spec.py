"""The registry's entry for native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.callback_spec import NumpySpec, Recording
from hostcall._callbacks.free_shapes import FreeShapes
from hostcall._callbacks.specs import Spec
from hostcall._functions.native.native_code import NativeCode
from hostcall_runtime import _interception, _library, _stable_ids
from hostcall_runtime._errors import LoweringError

_runtime = _library.load("hostcall_runtime._runtime")


class NativeSpec(NumpySpec):
    """NativeCode code (ops PyFunc and PyFuncStateless).

    A compiled program calls it by a custom call of its own; wherever else a Python function is
    wanted, that is its `Native`.
    """

    custom_call = "hostcall_native"
    function: NativeCode

    def _call(self, lends: bool) -> Callable[..., Any]:
        return self._run

    def _run(self, *arrays: Any) -> list[np.ndarray]:
        return self.function.run(arrays, self.inputs.pack_specs)

    def _register(self, recording: Recording, free: FreeShapes) -> tuple[Any, int]:
        entry = _Entry(self.function, self.description, self.site())
        _interception.know(entry)
        return entry, entry.callback_id

    @property
    def recorded_name(self) -> str:
        return self.given_name or f"native:{self.function.code.name}"

    def check_call(self, operands: Sequence[Spec], results: Sequence[Spec]) -> None:
        """What must be right before a compiled program may call it.

        Raises:
          LoweringError: when the code does not take the operands or make the results.
        """
        wrong = self.function.complaint(operands, results) or self._contradiction(operands, results)
        if wrong:
            raise LoweringError(f"hostcall: {wrong} This is {self.description}.")

    def _contradiction(self, operands: Sequence[Spec], results: Sequence[Spec]) -> str:
        """What `hostcall.native` was told of the results, where that is something else, or ""."""
        structure = self.function.structure(self.inputs.pack_specs(operands))
        declared = tf.nest.flatten(structure)
        if len(declared) == len(results) and all(
            one.dtype == other.dtype and one.shape.is_compatible_with(other.shape)
            for one, other in zip(declared, results, strict=True)
        ):
            return ""
        return (
            f"hostcall.native was told that the results are {_listed(declared)}, and here they are "
            f"{_listed(results)}. Correct one of them."
        )


class _Entry:
    """An entry of the runtime's table, for as long as this lives."""

    def __init__(self, native: NativeCode, label: str, site: _interception.Site) -> None:
        self.origin: Any = None
        self.site = site
        self._owner = native.owner
        wanted = _stable_ids.wanted(site.name, site.description, site.node)
        self.callback_id = native.code.register(label, wanted)

    def answer(self, answer: Callable[..., Any] | None) -> None:
        """Has something of Python's answer the calls of programs, or nothing any more."""
        _runtime.answer_native(self.callback_id, answer)

    # Calls that are under way take over the owner. (A finalizer that held it could keep alive what
    # it is to be called for.) Bound early: when the process exits, modules' names may go before.
    def __del__(self, unregister: Callable[[int, Any], None] = _runtime.unregister_native) -> None:
        unregister(self.callback_id, self._owner)


def _listed(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{spec.dtype.name} of shape {spec.shape}" for spec in specs) or "none"

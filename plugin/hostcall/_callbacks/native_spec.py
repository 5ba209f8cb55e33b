"""The registry's entry for native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.callback_spec import NumpySpec, Recording
from hostcall._callbacks.free_shapes import FreeShapes
from hostcall._callbacks.specs import Spec
from hostcall._functions.native import entries
from hostcall._functions.native.entries import NativeEntry
from hostcall._functions.native.native_code import NativeCode, contradiction
from hostcall_runtime._errors import LoweringError


class NativeSpec(NumpySpec):
    """NativeCode code (ops PyFunc and PyFuncStateless).

    A compiled program calls it by a custom call of its own; wherever else a Python function is
    wanted, that is its `Native`.
    """

    custom_call = entries.TARGET
    function: NativeCode

    def _call(self, lends: bool) -> Callable[..., Any]:
        return self._run

    def _run(self, *arrays: Any) -> list[np.ndarray]:
        return self.function.run(arrays, self.inputs.pack_specs)

    def _register(self, recording: Recording, free: FreeShapes) -> tuple[Any, int]:
        entry = NativeEntry(self.function, self.description, self.site())
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
        return contradiction(declared, results)

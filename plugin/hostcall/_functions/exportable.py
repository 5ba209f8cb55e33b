"""The description of a callback for export, independent of the framework that calls it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hostcall_runtime._errors import NotExportableError

if TYPE_CHECKING:  # it takes long to import
    from hostcall._functions.user_function import UserFunction
    from hostcall_mlir.exporting import structures


def on_device(description: str) -> NotExportableError:
    """Return the error for a callback with memory="device"."""
    return NotExportableError(
        f"{description}: it is declared with memory='device', and exported programs call functions "
        "of NumPy's arrays. Take memory='device' away"
    )


@dataclasses.dataclass(frozen=True)
class Source:
    """A callback to export.

    Attributes:
      user: the function.
      arguments, results: the structures of its arguments and results.
      dtypes: TensorFlow's dtypes of the results, if these are converted to tensors.
      has_state: whether the last result of a call is the handle of a tape residual.
    """

    user: UserFunction
    arguments: structures.Structure
    results: structures.Structure
    dtypes: tuple[Any, ...] = ()
    has_state: bool = False

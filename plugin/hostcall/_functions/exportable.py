"""The description of a callback for export, independent of the framework that calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hostcall_runtime._errors import NotExportableError

if TYPE_CHECKING:  # it takes long to import
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
      function: the user's function.
      given_name: the name that the user has given it, or None.
      description: the text for messages, with the file and line of the function and the call.
      arguments, results: the structures of its arguments and results.
      takes_tensors: whether its arguments are EagerTensors.
      borrow, out, timeout, concurrent: as declared.
      dtypes: TensorFlow's dtypes of the results, if these are converted to tensors.
      has_state: whether the last result of a call is the handle of a tape residual.
    """

    function: Callable[..., Any]
    given_name: str | None
    description: str
    arguments: structures.Structure
    results: structures.Structure
    takes_tensors: bool = False
    borrow: bool = False
    out: bool = False
    timeout: float | None = None
    dtypes: tuple[Any, ...] = ()
    has_state: bool = False
    concurrent: bool = False

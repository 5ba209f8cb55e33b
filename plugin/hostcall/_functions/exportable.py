"""What an exported program has to know of a callback, whichever framework calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hostcall_runtime._errors import NotExportableError

if TYPE_CHECKING:  # it takes long to import
    from hostcall_mlir.exporting import Structure


def on_device(description: str) -> NotExportableError:
    """The error for a callback that takes arrays where they lie."""
    return NotExportableError(
        f"{description}: it is declared with memory='device', and exported programs call functions "
        "of NumPy's arrays. Take memory='device' away"
    )


@dataclasses.dataclass(frozen=True)
class Source:
    """A callback.

    Attributes:
      function: the user's.
      given_name: the name that the user has given it, or None.
      description: for messages, with the file and line of the function and the call.
      arguments, results: the structures of what it is called with, and of what it returns.
      takes_tensors: whether its arguments are EagerTensors.
      borrow, out, timeout, concurrent: as declared.
      dtypes: TensorFlow's, of the results, where what the function returns is made tensors of them.
      has_state: whether calls have the handle of a tape residual for their last result.
    """

    function: Callable[..., Any]
    given_name: str | None
    description: str
    arguments: Structure
    results: Structure
    takes_tensors: bool = False
    borrow: bool = False
    out: bool = False
    timeout: float | None = None
    dtypes: tuple[Any, ...] = ()
    has_state: bool = False
    concurrent: bool = False

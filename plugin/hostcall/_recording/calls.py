"""What recording and replaying have in common: the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hostcall._recording import values
from hostcall._recording.values import Value
from hostcall_runtime._interception import Site


def encode_arguments(
    site: Site, args: Sequence[Any], call_of_handle: Callable[[int], int]
) -> list[Value]:
    """The arguments of a call, copied before the function can write to them.

    Args:
      site: of the call.
      args: its arguments.
      call_of_handle: tells which call has given a handle; 0 for none of these.
    """
    encoded = [values.encode_argument(value) for value in args]
    if site.takes_handle:
        # A handle is another number in each run.
        handle = int(np.asarray(args[0]))
        encoded[0] = values.encode_argument(np.int64(call_of_handle(handle)))
    return encoded


def outs_of(given: Mapping[str, Any]) -> list[Any]:
    """The arrays that a call writes its results into."""
    out = given.get("out")
    if out is None:
        return []
    return list(out) if isinstance(out, tuple) else [out]

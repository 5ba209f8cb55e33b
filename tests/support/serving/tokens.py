"""Tokens of saved graphs for the functions of `tests.support.serving.functions`."""

import json
from collections.abc import Sequence
from typing import Any

FUNCTIONS = "tests.support.serving.functions"


def token(
    function: str,
    dtypes: Sequence[str] = ("float32",),
    inputs: int = 1,
    kind: str = "numpy",
    **record: Any,
) -> str:
    """The token of an op that calls a function; a name without a colon is one of `functions`."""
    place = function if ":" in function else f"{FUNCTIONS}:{function}"
    specs = [{"spec": [dtype, None]} for dtype in dtypes]
    said = {
        "id": "pyfunc_0_00000000",
        "kind": kind,
        "inputs": inputs,
        "outputs": dtypes[0] if len(dtypes) == 1 else {"list": [*dtypes]},
        "at": "model.py:7",
        "function": {"place": place},
        "static": specs,
        "plain": specs,
        **record,
    }
    return "hostcall:1:" + json.dumps(said, separators=(",", ":"))

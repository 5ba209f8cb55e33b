"""All calls, and the ops that have none, with the reasons."""

from __future__ import annotations

import functools

from tests.kernels import (
    calls_compositions,
    calls_elementwise,
    calls_layout,
    calls_linear,
    calls_lookup,
    calls_quantized,
    calls_state,
    calls_windows,
    calls_xla,
    registry,
)
from tests.kernels.call import Call
from tests.kernels.data import Data, words

MODULES = (
    calls_elementwise,
    calls_layout,
    calls_windows,
    calls_linear,
    calls_lookup,
    calls_quantized,
    calls_state,
    calls_compositions,
    calls_xla,
)

_COLLECTIVE = "it needs several devices or processes"
_MADE_LATER = "TensorFlow makes it of other ops when it prepares a graph"
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        words("""CollectiveAssignGroupV2 CollectiveReduceV2 XlaAllReduce XlaReduceScatter XlaRecv
        XlaSend XlaSpmdFullToShardShape XlaSpmdShardToFullShape AssignVariableXlaConcatND
        ReadVariableXlaSplitND"""),
        _COLLECTIVE,
    ),
    **dict.fromkeys(
        words("""_Arg _Retval _ArrayToList _ListToArray _EagerConst _FusedBatchNormEx _FusedConv2D
        _UnaryOpsComposition"""),
        _MADE_LATER,
    ),
    **dict.fromkeys(
        words("XlaCallModule XlaCustomCall XlaCustomCallV2"),
        "it computes what its attributes hold, a program or the name of one",
    ),
    "SymbolicGradient": "TensorFlow 1 made it of functions, and writes the gradient out since",
    "_XlaAotOnlyVarHandleOp": "it is for programs that are compiled ahead of time",
    "StochasticCastToInt": "it has no function in Python",
}


@functools.cache
def calls(seed: int = 0) -> list[Call]:
    """Return all calls, their random numbers made from the seed."""
    return [call for calls in _by_module(seed).values() for call in calls]


def numbers(module: str, seed: int = 0) -> range:
    """Return which of the calls are from a module, named by the end of its name."""
    begin = 0
    for name, calls in _by_module(seed).items():
        if name == module:
            return range(begin, begin + len(calls))
        begin += len(calls)
    raise ValueError(f"no module of this name: {module}")


@functools.cache
def _by_module(seed: int) -> dict[str, list[Call]]:
    data = Data(seed)
    found: dict[str, list[Call]] = {}
    for module in MODULES:
        calls = found[module.__name__.rpartition("_")[2]] = []
        for part in module.PARTS:
            data.start(part.__name__)
            calls.extend(part(data))
    return found


def missing() -> list[str]:
    """Return the ops with kernels for XLA that have no call and no reason for that."""
    return sorted({*registry.ops()} - {call.op for call in calls()} - {*LEFT_OUT})

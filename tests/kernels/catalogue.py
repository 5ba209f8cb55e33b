"""All calls, and the ops that have none, with the reasons."""

import functools
import importlib

from tests.kernels import registry
from tests.kernels.call import Call
from tests.kernels.data import Data, words

_MODULES = words("elementwise layout windows linear lookup quantized state compositions xla")

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
    data = Data(seed)
    found: list[Call] = []
    for name in _MODULES:
        for part in importlib.import_module(f"tests.kernels.calls_{name}").PARTS:
            data.start(part.__name__)
            found += part(data)
    return found


def missing() -> list[str]:
    """Return the ops with kernels for XLA that have no call and no reason for that."""
    return sorted({*registry.ops()} - {call.op for call in calls()} - {*LEFT_OUT})

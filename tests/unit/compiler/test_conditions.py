"""hostcall._compiler.semantics.conditions: what depends on the processor, on any processor."""

import pytest
import tensorflow as tf

from hostcall._compiler import ops
from hostcall._compiler.semantics import conditions
from hostcall._tf.graph import op_kinds, protos
from hostcall._tf.types import NodeDef


def of_type(dtype: tf.DType) -> NodeDef:
    node: NodeDef = protos.node_def_pb2.NodeDef(name="node")
    node.attr["T"].type = dtype.as_datatype_enum
    return node


def test_tensorflow_knows_what_onednn_computes() -> None:
    taken = {dtype.name for dtype in conditions.FLOATS if op_kinds.is_of_onednn(of_type(dtype))}
    assert taken in (
        set(),  # with TF_ENABLE_ONEDNN_OPTS=0
        {"float32"},
        {"bfloat16", "float32"},
        {"float16", "bfloat16", "float32"},
    )


@pytest.mark.parametrize(
    ("of_onednn", "softmaxes", "pools"),
    [
        ((), (), ("float16", "bfloat16", "float32", "float64")),
        (("float32",), ("float32",), ("float16", "bfloat16", "float32", "float64")),
        (("bfloat16", "float32"), ("bfloat16", "float32"), ("float16", "float32", "float64")),
        (
            ("float16", "bfloat16", "float32"),
            ("float16", "bfloat16", "float32"),
            ("float32", "float64"),
        ),
    ],
)
def test_the_dtypes_that_onednn_computes(
    of_onednn: tuple[str, ...],
    softmaxes: tuple[str, ...],
    pools: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        op_kinds, "is_of_onednn", lambda node: tf.as_dtype(node.attr["T"].type).name in of_onednn
    )

    def changed(op: str) -> tuple[str, ...]:
        (difference,) = ops.OPS[op].differences
        return tuple(d.name for d in conditions.FLOATS if difference.applies(of_type(d), {}))

    assert changed("Softmax") == softmaxes
    assert changed("MaxPool") == pools

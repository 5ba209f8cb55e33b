"""Loops over a batch that TensorFlow turns into ops of the whole batch (`tf.vectorized_map`, pfor).

TensorFlow calls a converter for each op of the loop's body, with the op's converted inputs. A
converted input is a tensor of all elements (*stacked*), or one tensor for all of them.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._tf import features, script_op_graphs
from hostcall._tf.graph import op_kinds
from hostcall._tf.patches import around
from hostcall._tf.types import Operation
from hostcall_runtime._patching import Patch, Replacement


class Converted(NamedTuple):
    """A converted tensor of a loop's body, stacked if its first axis holds the elements."""

    tensor: Any
    stacked: bool


@dataclasses.dataclass(frozen=True)
class MappedOp:
    """A script op in the body of a loop over a batch."""

    op: Any
    inputs: Sequence[Converted]
    length: Any  # the number of elements, as a vector of one number
    loop: int  # a number that tells the loop from others
    may_loop: bool  # whether TensorFlow may make a loop of the op
    warns: bool  # whether TensorFlow shall warn of a loop

    @property
    def is_stacked(self) -> bool:
        """True if any input is stacked."""
        return any(converted.stacked for converted in self.inputs)

    def stacked(self, index: int) -> tf.Tensor:
        """Return an input with an axis of all elements; repeat it if it is not stacked."""
        tensor, is_stacked = self.inputs[index]
        if is_stacked:
            return tensor
        return tf.broadcast_to(tensor, tf.concat([self.length, tf.shape(tensor)], 0))

    def led(self, index: int) -> tf.Tensor:
        """Return an input with an axis in front: of all elements, or of size 1 if not stacked."""
        tensor, is_stacked = self.inputs[index]
        return tensor if is_stacked else tf.expand_dims(tensor, 0)


Convert = Callable[[MappedOp], "Sequence[Converted] | Operation"]


def refusal(text: str) -> Exception:
    """Return the error by which a converter has TensorFlow make a loop of the op, or refuse it."""
    error: Exception = features.ConversionNotImplementedError(text)
    return error


def conversions(convert: Convert) -> list[Patch]:
    """Return the patches that make `convert` convert the script ops."""

    def converter(given: Any) -> object:
        pfor = given.pfor
        converted = convert(
            MappedOp(
                op=given.op,
                inputs=[Converted(t, is_stacked) for t, is_stacked, _ in given.inputs],
                length=pfor.loop_len_vector,
                loop=_number_of(pfor.loop_var),
                may_loop=pfor.fallback_to_while_loop,
                warns=pfor._warn,
            )
        )
        if not isinstance(converted, Sequence):
            return converted
        return [features.wrap_converted(tensor, stacked) for tensor, stacked in converted]

    return [_conversion(kind, converter) for kind in sorted(op_kinds.SCRIPT_OPS)]


def _conversion(kind: str, converter: Callable[[Any], Any]) -> Patch:
    def read() -> object:
        return features.converters.get(kind)

    def write(value: object) -> None:
        if value is None:
            features.converters.pop(kind, None)
        else:
            features.converters[kind] = value

    return Replacement(read, write, lambda *_: converter).patch(
        f'tensorflow.python.ops.parallel_for.pfor._pfor_converter_registry["{kind}"]',
        "TensorFlow has no converter for script ops, and makes a loop around each.",
        features.VECTORIZING.title,
    )


def _number_of(loop_var: Any) -> int:
    """Return a number for the loop; functions that its body calls have the same loop variable."""
    graph = loop_var.graph
    if not hasattr(graph, "_hostcall_loops"):
        graph._hostcall_loops = {}
    return int(graph._hostcall_loops.setdefault(loop_var.op.name, secrets.randbits(52)))


def effects(has_effect: Callable[[Any], bool]) -> Patch:
    """Return the patch for loop bodies: an op that `has_effect` runs in order, for each element."""

    def convert_helper(convert: Callable[..., Any], pfor: Any, wanted: Any) -> object:
        if not hasattr(pfor, "_hostcall_begun"):
            pfor._hostcall_begun = True
            _convert_effects(pfor, convert, has_effect)
        return convert(pfor, wanted)

    return around(
        features.PFor,
        "_convert_helper",
        features.VECTORIZING,
        "TensorFlow converts what the results depend on, and runs the body once more as it is.",
        convert_helper,
    )


def _convert_effects(
    pfor: Any, convert: Callable[..., Any], has_effect: Callable[[Any], bool]
) -> None:
    graph = features.get_default_graph()
    if not isinstance(graph, features.FuncGraph):
        return  # a graph of TensorFlow 1 runs only the requested ops
    ordered = sorted(pfor._pfor_ops, key=lambda op: op._id)
    body = [op for op in ordered if script_op_graphs.has_effect(op)]
    done = {
        op
        for source in {op.graph for op in body}
        for op in script_op_graphs.replaced_ops_of(source)
    }
    for op in body:
        if op not in done and has_effect(op):
            convert(pfor, op.outputs[0] if op.outputs else op)
    # The ops of functions that the body calls are in other graphs.
    script_op_graphs.note_replaced(graph, [op for op in body if op.graph is graph])

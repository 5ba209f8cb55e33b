"""Types for TensorFlow's messages and objects, with the members of each that hostcall uses.

TensorFlow comes without types, so a type checker sees its classes as `Any`. It checks these.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, TypeVar

import tensorflow as tf

K = TypeVar("K")
T = TypeVar("T", bound="Message")


class Message(Protocol):
    """A protocol message."""

    def CopyFrom(self, other: Self, /) -> None: ...  # noqa: N802 - protobuf's names, as below
    def ByteSize(self) -> int: ...  # noqa: N802
    def HasField(self, name: str, /) -> bool: ...  # noqa: N802
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...  # noqa: N802


class Messages(MutableSequence[T]):
    """A repeated field of messages."""

    def add(self, **fields: object) -> T:
        """Append a message with these fields."""
        raise NotImplementedError


class MessageMap(MutableMapping[K, T]):
    """A map field whose values are messages."""

    def MergeFrom(self, other: Self, /) -> None:  # noqa: N802
        """Add the entries of another one, which replace those with equal keys."""
        raise NotImplementedError


class NameAttrList(Message, Protocol):
    """A function's name, and attributes for it."""

    name: str
    attr: MutableMapping[str, AttrValue]


class ListValue(Message, Protocol):
    """An AttrValue.ListValue."""

    s: MutableSequence[bytes]
    i: MutableSequence[int]
    type: MutableSequence[int]
    shape: Messages[Any]
    func: Messages[NameAttrList]


class TensorProto(Message, Protocol):
    """The value of a tensor."""

    dtype: int


class AttrValue(Message, Protocol):
    """The value of an attribute."""

    s: bytes
    i: int
    b: bool
    type: int
    shape: Any
    tensor: TensorProto
    list: ListValue
    func: NameAttrList


class AnyNode(Protocol):
    """An op with attributes: a NodeDef, or a node of a ProgramModel."""

    name: str
    op: str

    @property
    def attr(self) -> MutableMapping[str, AttrValue]: ...


class NodeDef(AnyNode, Message, Protocol):
    """An op of a graph or of a function."""

    device: str
    input: MutableSequence[str]
    experimental_debug_info: Any


class ArgDef(Message, Protocol):
    """An argument or a result of an op or of a function."""

    name: str
    type: int
    type_attr: str
    number_attr: str
    type_list_attr: str
    handle_data: Any


class AttrDef(Message, Protocol):
    """The definition of an attribute of an op."""

    name: str
    type: str
    allowed_values: AttrValue
    default_value: AttrValue


class OpDef(Message, Protocol):
    """The definition of an op, or the signature of a function."""

    name: str
    input_arg: Messages[ArgDef]
    output_arg: Messages[ArgDef]
    control_output: MutableSequence[str]
    attr: Messages[AttrDef]
    is_stateful: bool


class FunctionDef(Message, Protocol):
    """A function of a library."""

    signature: OpDef
    node_def: Messages[NodeDef]
    ret: MutableMapping[str, str]
    control_ret: MutableMapping[str, str]
    attr: MutableMapping[str, AttrValue]
    arg_attr: MessageMap[int, Any]
    resource_arg_unique_id: MutableMapping[int, int]


class FunctionDefLibrary(Message, Protocol):
    """Functions that call one another."""

    function: Messages[FunctionDef]


class GraphDef(Message, Protocol):
    """A graph, with the functions that it calls."""

    node: Messages[NodeDef]
    library: FunctionDefLibrary


class MetaGraphDef(Message, Protocol):
    """A graph of a SavedModel."""

    meta_info_def: Any
    graph_def: GraphDef
    object_graph_def: Any
    signature_def: Mapping[str, Any]


class SavedModel(Message, Protocol):
    """The message of a SavedModel."""

    meta_graphs: Messages[MetaGraphDef]


Functions = Mapping[str, FunctionDef]
"""FunctionDefs by name."""


class Operation(Protocol):
    """An op of a graph; `tf.Operation`."""

    name: str
    type: str
    graph: Graph
    node_def: NodeDef
    inputs: Sequence[tf.Tensor]
    outputs: list[tf.Tensor]
    control_inputs: list[Operation]
    traceback: Sequence[Any]
    _control_flow_context: object

    def get_attr(self, name: str) -> Any: ...
    def _set_attr(self, name: str, value: AttrValue) -> None: ...
    def _clear_attr(self, name: str) -> None: ...
    def _add_control_input(self, op: Operation) -> None: ...


class Graph(Protocol):
    """A graph; `tf.Graph`. The last members are hostcall's own."""

    outer_graph: Graph | None
    _functions: Mapping[str, Any]
    _py_funcs_used_in_graph: list[object]
    _hostcall_ops: list[Operation]
    _hostcall_effect: bool
    _hostcall_tokens: frozenset[str]

    def get_operations(self) -> list[Operation]: ...
    def get_operation_by_name(self, name: str) -> Operation: ...
    def as_default(self) -> AbstractContextManager[Any]: ...
    def as_graph_def(self, *, add_shapes: bool = ...) -> GraphDef: ...


class FuncGraph(Graph, Protocol):
    """The graph of a function."""

    name: str
    captures: list[tuple[Any, tf.Tensor]]
    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]
    control_outputs: list[Operation]
    structured_outputs: Any
    structured_input_signature: Any


class ConcreteFunction(Protocol):
    """A traced function; `tf.types.experimental.ConcreteFunction`."""

    name: bytes
    graph: FuncGraph
    function_def: FunctionDef
    function_type: Any
    inference_fn: Any
    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]
    captured_inputs: list[tf.Tensor]
    variables: Sequence[tf.Variable]
    structured_input_signature: Any
    structured_outputs: Any
    _arg_keywords: Any
    _num_positional_args: int
    _captured_inputs: list[tf.Tensor]

    def set_variables(self, variables: Sequence[tf.Variable]) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

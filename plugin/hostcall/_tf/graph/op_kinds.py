"""The kinds of ops, those that call Python above all, and TensorFlow's definition of each op."""

from __future__ import annotations

from typing import Any

from hostcall._tf import features
from hostcall._tf.graph import attributes, protos
from hostcall._tf.types import AnyNode, NodeDef, OpDef, Operation
from hostcall_runtime import _library

gen_script_ops = features.gen_script_ops
SCRIPT_OPS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
STATEFUL_SCRIPT_OPS = frozenset({"EagerPyFunc", "PyFunc"})
CALL_OPS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# XLA knows their results when it compiles.
SHAPE_OPS = frozenset({"Rank", "Shape", "ShapeN", "Size"})
LIST_WRITE = "TensorListSetItem"
# XLA compiles these to nothing.
CHECKS = {"Assert": "assertion", "CheckNumerics": "check"}
LOOP_OPS = frozenset({"While", "StatelessWhile"})
BRANCH_OPS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
CONTROL_FLOW_OPS = LOOP_OPS | BRANCH_OPS
# The ops of TensorFlow 1's loops and branches, which work only together. Sessions turn newer loops
# and branches into them. XLA compiles none of them.
FRAME_OPS = frozenset(
    {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_SwitchN"}
    | {"RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"}
)
MERGES = frozenset({"Merge", "RefMerge"})
LOOP_ENDS = frozenset({"NextIteration", "RefNextIteration"})
# They compute each element of the result from one of their operand.
_UNARY = """
Abs Acos Acosh Angle Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Conj Cos Cosh Digamma Elu Erf
Erfc Erfinv Exp Expm1 Floor Imag Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p
LogicalNot Ndtri Real Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus
Softsign Sqrt Square Tan Tanh
"""
UNARY = frozenset(_UNARY.split())
# XLA compiles the functions that they call along with them.
CALLING_OPS = CALL_OPS | CONTROL_FLOW_OPS
# Passes on values whose sizes XLA has to know: csrc/tensorflow/size_checks.cc.
KNOWN_SIZES = "HostcallKnownSizes"
# These pass on each value as the result `output` with the same number.
IDENTITIES = frozenset({"Identity", "IdentityN", KNOWN_SIZES})
EAGER_PY_FUNC = "EagerPyFunc"
# Stands for a region of host ops with side effects, which a program calls.
REGION = "HostcallRegion"
XLA_CALL_MODULE = "XlaCallModule"
# Raises an error of values: csrc/tensorflow/value_errors_kernel.cc.
RAISE = "HostcallRaise"
_ALWAYS_ORDERED = frozenset({RAISE, REGION})
# All ops that may have to run in program order.
ORDERED_OPS = STATEFUL_SCRIPT_OPS | {RAISE, REGION, XLA_CALL_MODULE}


def calls_python(node: AnyNode) -> bool:
    """Return whether a node is a script op, or holds a program of JAX's that calls Python."""
    op = node.op
    return op in SCRIPT_OPS or (
        op == XLA_CALL_MODULE and protos.is_true(node, attributes.CALLS_PYTHON)
    )


def has_effect(node: AnyNode) -> bool:
    """Return whether a node is a script op whose function may have side effects."""
    return node.op in STATEFUL_SCRIPT_OPS and attributes.UNORDERED not in node.attr


def has_no_effect(node: AnyNode) -> bool:
    """Return whether a node is a script op whose function has no side effects."""
    return node.op in SCRIPT_OPS and not has_effect(node)


def is_ordered(node: AnyNode) -> bool:
    """Return whether a node has side effects that happen in program order."""
    op = node.op
    if op == XLA_CALL_MODULE:
        return protos.is_true(node, attributes.HAS_TOKEN)
    return op in _ALWAYS_ORDERED or has_effect(node)


def lets_list_grow(node: AnyNode) -> bool:
    """Return whether a node may write past the end of a list; XLA's lists have a fixed size."""
    return node.op == LIST_WRITE and node.attr["resize_if_index_out_of_bounds"].b


def op_def(name: str) -> OpDef:
    """Return the OpDef of a TensorFlow op, or raise a KeyError."""
    definition = op_def_or_none(name)
    if definition is None:
        raise KeyError(f"TensorFlow knows no op {name!r}.")
    return definition


def op_def_or_none(name: str) -> OpDef | None:
    """Return the OpDef of a TensorFlow op; None if TensorFlow has no op of that name."""
    definition: OpDef | None = features.op_defs.get(name)
    return definition


_kernels: dict[tuple[Any, ...], bool] = {}


def has_xla_kernel(node: NodeDef, device_type: str = "CPU") -> bool:
    """Return whether XLA has a kernel for an op on a device; functions that it calls aside."""
    return _ask("has_xla_kernel", node, device_type)


def has_kernel(node: NodeDef) -> bool:
    """Return whether TensorFlow has a kernel for an op on the CPU."""
    return _ask("has_kernel", node)


def is_of_onednn(node: NodeDef) -> bool:
    """Return whether TensorFlow's kernels for the dtype of an op are oneDNN's, where it has one."""
    return bool(_library.load("hostcall._tensorflow").has_onednn_kernels(node.attr["T"].type))


def _ask(question: str, node: NodeDef, *device_type: str) -> bool:
    """Ask TensorFlow once for each op and its dtypes, by which kernels are chosen."""
    types = ((name, attr.type or tuple(attr.list.type)) for name, attr in node.attr.items())
    key = (question, *device_type, node.op, *sorted(one for one in types if one[1]))
    if key not in _kernels:
        ask = getattr(_library.load("hostcall._tensorflow"), question)
        _kernels[key] = ask(node.SerializeToString(), *device_type)
    return _kernels[key]


_constants: dict[str | tuple[str, int], list[int]] = {}


def constant_operands(node: NodeDef) -> list[int]:
    """Return the positions of the operands whose values XLA needs when it compiles an op."""
    op = node.op
    found = _constants.get(op)
    if found is None:
        # For an op that takes a list, the positions depend on the list's length.
        key = op, sum(value[0] != "^" for value in node.input)
        found = _constants.get(key)
        if found is None:
            bindings = _library.load("hostcall._tensorflow")
            found = _constants[key] = bindings.constant_operands(node.SerializeToString())
            if not found:
                _constants[op] = found
    return found


def script_op_like(op: Operation, inputs: list[Any]) -> Operation:
    """Create a script op in the default graph that calls the function of another script op."""
    created: Operation = features.get_default_graph().create_op(
        op.type,
        inputs,
        [output.dtype for output in op.outputs],
        attrs={name: value for name, value in op.node_def.attr.items() if name[0] != "_"},
    )
    return created


# The custom calls of programs that TensorFlow would refuse.
_TARGETS = ("hostcall", "hostcall_any", "hostcall_raise")


def call_module(tensors: list[Any], module: bytes, results: list[Any]) -> list[Any]:
    """Call a portable artifact that calls Python by a TensorFlow op; `results` are TensorSpecs."""
    called = features.xla_call_module(
        tensors,
        version=9,  # the first version with tokens among arguments and results
        module=module,
        Sout=[spec.shape for spec in results],
        Tout=[spec.dtype for spec in results],
        platforms=["CPU"],
        disabled_checks=[f"custom_call:{target}" for target in _TARGETS],
    )
    return list(called) if isinstance(called, list | tuple) else []


def take_own_kernel(node: AnyNode) -> None:
    """Give an op the kernel of hostcall's: that of host_script_op.cc or of where.cc."""
    node.attr["_kernel"].s = b"hostcall"

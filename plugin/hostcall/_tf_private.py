"""Every private name of TensorFlow's that hostcall touches. No other module imports one.

A new TensorFlow release is tried here first. Each name says what it is for, so that its successor
can be found.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tensorflow.compiler.tf2xla.ops import gen_xla_ops as gen_xla_ops
from tensorflow.core.framework import attr_value_pb2
from tensorflow.core.framework import function_pb2 as function_pb2
from tensorflow.core.framework import node_def_pb2 as node_def_pb2
from tensorflow.core.framework import tensor_pb2 as tensor_pb2
from tensorflow.core.function.capture import restore_captures as _restore_captures
from tensorflow.python import pywrap_tfe
from tensorflow.python.autograph.core import ag_ctx as _autograph_status
from tensorflow.python.autograph.impl import api as _autograph
from tensorflow.python.client import session as _session
from tensorflow.python.eager import backprop_util as _backprop_util
from tensorflow.python.eager import cancellation as _cancellation
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager import forwardprop_util as _forwardprop_util
from tensorflow.python.eager import lift_to_graph as _lift_to_graph
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
from tensorflow.python.eager.polymorphic_function import attributes as _attributes
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.eager.polymorphic_function import tracing_compilation as _tracing_compilation
from tensorflow.python.eager.polymorphic_function import transform as _transform
from tensorflow.python.framework import composite_tensor as _composite_tensor
from tensorflow.python.framework import constant_op as _constant_op
from tensorflow.python.framework import dtypes as _dtypes
from tensorflow.python.framework import errors as _errors
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import function as _function
from tensorflow.python.framework import importer as _importer
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework import registry as _registry
from tensorflow.python.framework import tensor as _tensor
from tensorflow.python.framework import type_spec as _type_spec
from tensorflow.python.ops import gen_script_ops as gen_script_ops
from tensorflow.python.ops import gradients_util as _gradients_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.ops import script_ops as script_ops
from tensorflow.python.saved_model import function_deserialization as _function_deserialization
from tensorflow.python.saved_model import loader_impl as _loader_impl
from tensorflow.python.saved_model import save as _save
from tensorflow.python.util import nest as _nest
from tensorflow.python.util import tf_stack as _tf_stack
from tensorflow.python.util import traceback_utils as _traceback_utils
from tensorflow.python.util import variable_utils as _variable_utils

F = TypeVar("F", bound=Callable[..., Any])

CompositeTensor = _composite_tensor.CompositeTensor
ConcreteFunction = _concrete_function.ConcreteFunction
EagerFunc = script_ops.EagerFunc
EagerTensor = _ops.EagerTensor
ResourceVariable = _resource_variable_ops.BaseResourceVariable
TypeSpec = _type_spec.TypeSpec

# Token -> object that the stock kernel calls; holds its values weakly.
token_registry = script_ops._py_funcs

# From what a function returns to an array; the bytes of its strings are kept as they are.
to_array = token_registry._convert

# What calls keep for their gradients. TensorFlow's keys are tokens (bytes), ours are numbers.
tape_cache = script_ops.tape_cache

_building = threading.local()
_noted: list[bool] = []

SCRIPT_OPS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
STATEFUL_SCRIPT_OPS = frozenset({"EagerPyFunc", "PyFunc"})
_CALL_OPS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_CALLING_OPS = _CALL_OPS | {"While", "If", "Case"}
_EAGER_GRADIENT = "EagerPyFunc"
_JAX_PROGRAM = "XlaCallModule"
_HANDLES = frozenset({_dtypes.resource, _dtypes.variant})

do_not_convert: Callable[[F], F] = _autograph.do_not_convert
eager_mode = _context.eager_mode
is_async = _context.is_async
ensure_initialized = _context.ensure_initialized
executing_eagerly = _context.executing_eagerly
is_trainable = _backprop_util.IsTrainable
flatten_up_to = _nest.flatten_up_to
convert_variables_to_tensors = _variable_utils.convert_variables_to_tensors

_AUTOGRAPH_IS_OFF = _autograph_status.ControlStatusCtx(_autograph_status.Status.DISABLED)


def called_unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, in whose calls autograph converts nothing.

    What `do_not_convert` does takes more time than many callbacks. It is done for code that
    autograph has written, as of functions that are defined in a tf.function; other code does not
    ask autograph.
    """
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType) and "ag__" not in code.co_freevars:
        return function
    statuses = _autograph_status._control_ctx

    def call(*args: Any, **kwargs: Any) -> Any:
        stack = statuses()
        stack.append(_AUTOGRAPH_IS_OFF)
        try:
            return function(*args, **kwargs)
        finally:
            stack.pop()

    return call


def without_autograph(function: Any) -> Any:
    """`function`, or what it calls where it is autograph's wrapper around the user's function."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename != _autograph.__file__:
        return function
    return inspect.getclosurevars(function).nonlocals.get("func", function)


def unwrapped(function: Any) -> Any:
    """The user's function behind the wrapper that keeps autograph out of it."""
    # Around what is no function (a ufunc, say) the wrapper says nothing of what it wraps.
    return without_autograph(inspect.unwrap(function))


def uses_autograph(function: Any) -> bool:
    """What a tf.function was given as `autograph`."""
    return bool(function._autograph)


def as_array(tensor: Any) -> Any:
    """The array of an EagerTensor, over the tensor's own memory: for reading."""
    return tensor._numpy()


def to_eager_tensor(value: Any, dtype: Any) -> Any:
    """An EagerTensor of an array that nobody else writes to; shares its memory where it can."""
    ctx = _context.context()
    ctx.ensure_initialized()
    return _constant_op.convert_to_eager_tensor(value, ctx, dtype)


def convert_to_tensor(value: Any, dtype: Any) -> Any:
    """`tf.convert_to_tensor`, without the cost of the public one's dispatch."""
    return _ops.convert_to_tensor(value, dtype=dtype)


def copy_to_device(tensor: Any, device: str | None) -> Any:
    """An EagerTensor on the device of the kernel that returns it; None is the CPU."""
    name = device or "/job:localhost/replica:0/task:0/device:CPU:0"
    with _ops.device(device):
        return script_ops._maybe_copy_to_context_device(tensor, name)


def type_spec_of(value: Any) -> Any:
    """The TypeSpec of a composite tensor."""
    return _type_spec.type_spec_from_value(value)


_nonce = ""


def renew_nonce() -> None:
    """Gives tokens that are made from now on another nonce than those that there are."""
    global _nonce
    _nonce = os.urandom(4).hex()


def add_nonce_to_tokens() -> None:
    """Makes tokens, TensorFlow's own ones too, that no other process makes: `pyfunc_N_NONCE`.

    TensorFlow counts them from 0 in each process, so that an op of another one (out of a
    SavedModel, say) would call the function that happens to have its number here.
    """
    count = type(token_registry)._next_unique_token
    token_registry._next_unique_token = lambda: f"{count(token_registry)}_{_nonce}"


def leave_nonce_out_of_tokens() -> None:
    """Undoes `add_nonce_to_tokens`; tokens that there are stay as they are."""
    vars(token_registry).pop("_next_unique_token", None)


def new_token() -> str:
    """A token that no op has yet."""
    token: str = token_registry._next_unique_token()
    return token


def register_token(token: str, function: Any) -> None:
    """Makes the stock kernel call `function` for ops with this token; holds it weakly."""
    token_registry._funcs[token] = function


def owning_graphs() -> list[Any]:
    """The graphs, innermost first, that a script op created now belongs to.

    Empty when executing eagerly. The default graph that TensorFlow keeps in the background of eager
    execution is left out: it never dies, and what is tied to it leaks.
    """
    if _context.executing_eagerly():
        return []
    graphs = []
    graph = _ops.get_default_graph()
    while isinstance(graph, _func_graph.FuncGraph | _function._FuncGraph):
        graphs.append(graph)
        outer = (
            graph.outer_graph if isinstance(graph, _func_graph.FuncGraph) else graph._outer_graph
        )
        if outer is graph:
            break
        graph = outer
    in_background = graphs and _ops.executing_eagerly_outside_functions()
    return graphs if in_background else [*graphs, graph]


def keep_alive(graph: Any, value: object) -> None:
    """Makes `graph` own `value`, in the list that stock TensorFlow uses for it."""
    if not hasattr(graph, "_py_funcs_used_in_graph"):
        graph._py_funcs_used_in_graph = []
    graph._py_funcs_used_in_graph.append(value)


def own(value: object) -> None:
    """Makes the graphs own `value` that an op created now belongs to."""
    for graph in owning_graphs():
        keep_alive(graph, value)


# On ops that call Python and are no script ops; and on those of them that a token goes through.
CALLS_PYTHON = "_hostcall_calls_python"
HAS_TOKEN = "_hostcall_has_token"


def calls_python(node: Any) -> bool:
    """Whether a node is a script op, or one that holds a program of JAX's which calls Python."""
    return node.op in SCRIPT_OPS or (CALLS_PYTHON in node.attr and node.attr[CALLS_PYTHON].b)


def is_ordered(node: Any) -> bool:
    """Whether it is one, with side effects that happen in the order of the program."""
    return node.op in STATEFUL_SCRIPT_OPS or (HAS_TOKEN in node.attr and node.attr[HAS_TOKEN].b)


@contextlib.contextmanager
def marked_ops(marks: dict[str, bool | bytes]) -> Iterator[None]:
    """Puts marks, attributes and their values, onto the ops that are created in the context."""
    if _context.executing_eagerly():
        yield
        return
    if marks and not _noted:
        _noted.append(True)
    values = {
        mark: attr_value_pb2.AttrValue(**{"b" if isinstance(value, bool) else "s": value})
        for mark, value in marks.items()
    }
    with _ops.get_default_graph()._attr_scope(values):
        yield


def keep_alive_in_background(value: object) -> None:
    """Keeps `value` as long as stock TensorFlow would: until the process ends."""
    keep_alive(_ops.get_default_graph(), value)


def leave_out_frames_of(directory: str) -> None:
    """Has TensorFlow leave a package's frames out of tracebacks, as it does its own.

    Each error of a function would show some otherwise: of what stands around TensorFlow's own
    functions.
    """
    _traceback_utils._EXCLUDED_PATHS += (directory + os.sep,)


def stack() -> Iterator[tuple[str, int]]:
    """(file, line) of each frame, innermost first, autograph's generated code mapped back."""
    return ((frame.filename, frame.lineno) for frame in reversed(_tf_stack.extract_stack()))


def original_location(file: str, line: int) -> tuple[str, int]:
    """Where the user wrote what autograph has copied to `file` and `line`; for the rest the same.

    Only while the function that autograph converted is traced.
    """
    for mapper in reversed(_tf_stack._source_mapper_stacks[threading.get_ident()]):
        known = mapper.get_effective_source_map()
        # A function's first line may be that of a decorator, which only autograph has written.
        later = [at for name, at in known if name == file and at >= line]
        if later:
            return known[file, min(later)][0], known[file, min(later)][1]
    return file, line


def note_script_op(op: Any) -> None:
    """Remembers a script op of its graph for the functions below."""
    if not hasattr(op.graph, "_hostcall_ops"):
        op.graph._hostcall_ops = []
    op.graph._hostcall_ops.append(op)
    if not _noted:
        _noted.append(True)


def script_ops_of(graph: Any) -> list[Any]:
    """The script ops of a graph; for a graph without any this costs one look-up."""
    return list(getattr(graph, "_hostcall_ops", ()))


def any_script_op() -> bool:
    """Whether this process has created any in a graph, or an op that is marked as such."""
    return bool(_noted)


def has_effect(op: Any) -> bool:
    """Whether an op has side effects in Python, or calls functions that hold one which has."""
    if op.type in STATEFUL_SCRIPT_OPS or (op.type == _JAX_PROGRAM and is_ordered(op.node_def)):
        return True
    if op.type not in _CALLING_OPS:
        return False
    names = [a.func.name for a in op.node_def.attr.values() if a.HasField("func")]
    names += [f.name for a in op.node_def.attr.values() for f in a.list.func]
    return any(_function_has_effect(op.graph, name) for name in names)


def _function_has_effect(graph: Any, name: str) -> bool:
    function = graph._functions.get(name)
    body = getattr(function, "graph", None)
    if body is None:
        return False
    if not hasattr(body, "_hostcall_effect"):
        body._hostcall_effect = any(has_effect(op) for op in body.get_operations())
    return bool(body._hostcall_effect)


def graphs_of(graph: Any) -> dict[str, Any]:
    """The graphs of the functions that a graph calls, and of those that they call, by name."""
    found: dict[str, Any] = {}
    pending = [graph]
    while pending:
        for name, function in pending.pop()._functions.items():
            body = getattr(function, "graph", None)
            if body is not None and name not in found:
                found[name] = body
                pending.append(body)
    return found


def like(concrete: Any, library: Any) -> Any:
    """A ConcreteFunction with the signature and the captures of another one, and a new body.

    Args:
      concrete: the other one, which the new one keeps alive: what has been registered for its graph
        (Python functions, custom gradients) dies with it.
      library: a FunctionDefLibrary with the new body, under the old name, and all that it calls;
        used up.
    """
    name = concrete.function_def.signature.name
    function = next(f for f in library.function if f.signature.name == name)
    attributes = {key: value for key, value in function.attr.items() if key != "_input_shapes"}
    loaded = _function_deserialization.load_function_def_library(
        library, load_shared_name_suffix=""
    )
    graph = loaded[name].graph
    graph.structured_input_signature = concrete.structured_input_signature
    outputs = iter(graph.outputs)
    graph.structured_outputs = _nest.map_structure(
        lambda value: None if value is None else next(outputs),
        concrete.graph.structured_outputs,
        expand_composites=True,
    )
    keep_alive(graph, concrete)
    new = ConcreteFunction.from_func_graph(graph, concrete.function_type, attributes)
    new._arg_keywords = concrete._arg_keywords
    new._num_positional_args = concrete._num_positional_args
    _restore_captures.restore_captures(new, concrete.captured_inputs)
    new.set_variables(concrete.variables)
    return new


def read_saved_model(path: str) -> Any:
    """The SavedModel message of a directory.

    Raises:
      OSError: when it holds none, or one that cannot be read.
    """
    return _loader_impl.parse_saved_model(path)


def is_jitted_call(op: Any) -> bool:
    """Whether an op calls a function with `jit_compile=True`."""
    return op.type in _CALL_OPS and op._control_flow_context is not None


def add_control_edge(before: Any, after: Any) -> None:
    """Makes one op of a graph run after another."""
    if before not in after.control_inputs:
        after._add_control_input(before)


def op_def(name: str) -> Any:
    """The OpDef of an op of TensorFlow's.

    Raises:
      KeyError: when there is none.
    """
    definition = op_def_or_none(name)
    if definition is None:
        raise KeyError(f"TensorFlow knows no op {name!r}.")
    return definition


def op_def_or_none(name: str) -> Any:
    """The OpDef of an op of TensorFlow's; None where there is none."""
    return _op_def_registry.get(name)


_kernels: dict[tuple[Any, ...], bool] = {}


def has_xla_kernel(glue: Any, node: Any) -> bool:
    """Whether XLA can compile an op, by its NodeDef; says nothing of functions that it calls."""
    types = [(name, a.type or tuple(a.list.type)) for name, a in node.attr.items() if _is_type(a)]
    key = (node.op, *sorted(types))
    if key not in _kernels:
        _kernels[key] = glue.has_xla_kernel(node.SerializeToString())
    return _kernels[key]


def outermost(graph: Any) -> Any:
    """The graph that a graph of a function was traced in, or in one that was traced in it."""
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def _is_type(attr: Any) -> bool:
    return attr.HasField("type") or bool(attr.list.type)


def must_run(func_graph: Any, ops: list[Any]) -> None:
    """Makes ops run whenever the function does, whoever uses their results."""
    func_graph.control_outputs.extend(op for op in ops if op not in func_graph.control_outputs)


def integer_list(numbers: list[int]) -> Any:
    """Integers as the value of an attribute."""
    return attr_value_pb2.AttrValue.ListValue(i=numbers)


def shape_list(shapes: list[Any]) -> Any:
    """An attribute's list of shapes, from TensorShapeProtos."""
    return attr_value_pb2.AttrValue.ListValue(shape=shapes)


def set_attr(op: Any, name: str, **value: Any) -> None:
    """Sets an attribute of a graph's op, e.g. `set_attr(op, "_a", b=True)`."""
    op._set_attr(name, attr_value_pb2.AttrValue(**value))


def add_trace_hook(hook: Callable[[Any], None]) -> None:
    """Calls `hook` with each FuncGraph when its tracing has ended."""
    if hook not in _transform.FUNC_GRAPH_TRANSFORMS:
        _transform.FUNC_GRAPH_TRANSFORMS.append(hook)


def remove_trace_hook(hook: Callable[[Any], None]) -> None:
    """Undoes `add_trace_hook`."""
    if hook in _transform.FUNC_GRAPH_TRANSFORMS:
        _transform.FUNC_GRAPH_TRANSFORMS.remove(hook)


def is_traced_to_compile() -> bool:
    """Whether what is traced now is, or lies in, a function with `jit_compile=True`.

    Nothing but the frame that traces a function knows it yet. A function of ours around that one
    would be seen in each error of a graph, among the user's frames.
    """
    graphs = owning_graphs()
    frame = sys._getframe() if graphs else None
    while frame is not None:
        if frame.f_code is _tracing_compilation._create_concrete_function.__code__:
            attributes = frame.f_locals["tracing_options"].attributes or {}
            if attributes.get(_attributes.XLA_COMPILE) and frame.f_locals["func_graph"] in graphs:
                return True
        frame = frame.f_back
    return False


def replace_gradient(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Sets the gradient of EagerPyFunc and returns the one that it had."""
    entries = _ops.gradient_registry._registry
    old = entries[_EAGER_GRADIENT]
    entries[_EAGER_GRADIENT] = {
        _registry._TYPE_TAG: gradient,
        _registry._LOCATION_TAG: old[_registry._LOCATION_TAG],
    }
    stock: Callable[..., Any] = old[_registry._TYPE_TAG]
    return stock


def own_custom_gradient(op: Any) -> None:
    """Lets the gradient of an op that `tf.custom_gradient` has made die with the op's graphs.

    TensorFlow's registry would hold it for ever, and the graph with it.
    """
    name = op.get_attr("_gradient_op_type").decode()
    entries = _ops.gradient_registry._registry
    function = entries[name][_registry._TYPE_TAG]
    reference: Callable[[], Any] = weakref.ref(function)
    entries[name] = {
        **entries[name],
        _registry._TYPE_TAG: lambda op, *upstream: reference()(op, *upstream),
    }
    weakref.finalize(function, entries.pop, name, None).atexit = False
    own(function)


# Whether tapes do not record on this thread, as while TensorFlow runs a function; how to let them,
# and to stop them again; whether there are none. All in C: no signal's handler runs in them.
has_no_tapes = pywrap_tfe.TFE_Py_TapeSetIsEmpty
tapes_are_stopped = pywrap_tfe.TFE_Py_TapeSetIsStopped
recording_functions = (
    tapes_are_stopped,
    pywrap_tfe.TFE_Py_TapeSetRestartOnThread,
    pywrap_tfe.TFE_Py_TapeSetStopOnThread,
    has_no_tapes,
)


def gradient_is_overridden() -> bool:
    """Whether a py_function that is created now has another gradient than EagerPyFunc's.

    That is so within a `tf.Graph.gradient_override_map` which names it.
    """
    if _context.executing_eagerly():
        return False
    return _EAGER_GRADIENT in _ops.get_default_graph()._gradient_override_map


@contextlib.contextmanager
def resumed(tape: Any) -> Iterator[None]:
    """Lets a GradientTape that has ended record once more."""
    tape._push_tape()
    try:
        yield
    finally:
        tape._pop_tape()


def orders_recorded(tensors: Any) -> int:
    """How many orders of derivative an op that runs eagerly on `tensors` may be asked for.

    TensorFlow tells one tape from several and no more; three orders stand for several. A
    ForwardAccumulator differentiates the gradient.
    """
    if _forwardprop_util.pack_tangents(tensors).tangents:
        return 3
    possible = _gradients_util.PossibleTapeGradientTypes(tensors)
    if possible == _gradients_util.POSSIBLE_GRADIENT_TYPES_NONE:
        return 0
    return 1 if possible == _gradients_util.POSSIBLE_GRADIENT_TYPES_FIRST_ORDER else 3


def more_orders_may_follow() -> bool:
    """Whether TensorFlow is building the gradient of a function for several nested tapes."""
    return getattr(_building, "higher_order", False)


def watch_higher_orders() -> None:
    """Prepares `more_orders_may_follow`."""
    kind = _concrete_function._HigherOrderTapeGradientFunctions
    build = kind._forward_and_backward_functions

    @functools.wraps(build)
    def build_and_tell(*args: Any, **kwargs: Any) -> Any:
        outer, _building.higher_order = more_orders_may_follow(), True
        try:
            return build(*args, **kwargs)
        finally:
            _building.higher_order = outer

    kind._forward_and_backward_functions = build_and_tell


def around_calls(
    run: Callable[[frozenset[str], Callable[[], Any]], Any],
    recorded: Callable[[frozenset[str]], bool],
) -> None:
    """Lets `run` carry out the calls of functions from eager code, and the runs of sessions.

    Args:
      run: is given the tokens of the py_functions that a call can reach, where there are any, and
        the call, whose result it returns.
      recorded: whether py_functions with these tokens may be recorded in the call.
    """
    _put_around(_concrete_function.ConcreteFunction, "_call_flat", run, recorded)
    _put_around(_session.BaseSession, "run", run, recorded)


def _put_around(
    owner: Any, name: str, run: Callable[..., Any], recorded: Callable[[frozenset[str]], bool]
) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # In this order: most functions need no more than the first question.
        tokens = _tokens_of(self.graph) if _noted else None
        if not tokens or not recorded(tokens) or _is_building(self):
            return method(self, *args, **kwargs)
        return run(tokens, functools.partial(method, self, *args, **kwargs))

    setattr(owner, name, call)


def _is_building(owner: Any) -> bool:
    """Whether a call of a function goes into a graph, or to a thread that nobody waits for."""
    return isinstance(owner, _concrete_function.ConcreteFunction) and (
        not _context.executing_eagerly() or _context.is_async()
    )


def _tokens_of(graph: Any) -> frozenset[str]:
    """The tokens of the py_functions in a graph and in the functions that it calls."""
    known: frozenset[str] | None = getattr(graph, "_hostcall_tokens", None)
    if known is not None:
        return known
    ops = (op for op in script_ops_of(graph) if op.type == _EAGER_GRADIENT)
    tokens = {op.get_attr("token").decode() for op in ops}
    for function in graph._functions.values():
        body = getattr(function, "graph", None)
        if body is not None:
            tokens |= _tokens_of(body)
    if isinstance(graph, _func_graph.FuncGraph):  # the user may add to any other
        graph._hostcall_tokens = frozenset(tokens)
    return frozenset(tokens)


def py_functions_in(concrete: Any) -> frozenset[str]:
    """The tokens of the py_functions that a call of a ConcreteFunction can reach."""
    return _tokens_of(concrete.graph)


def calls_are_plain() -> bool:
    """Whether a call of a function on this thread is no more than a run of its program.

    It is more where tapes or accumulators record, where a graph is being built (also in the eager
    mode of an `init_scope`, as the graph wants to know of variables), and in asynchronous mode.
    """
    context = _context.context()
    return (
        has_no_tapes()
        and context.executing_eagerly()
        and not _ops.has_default_graph()
        and not _runs_later(context)
    )


def _runs_later(context: Any) -> bool:
    """Whether calls of this thread are asynchronous: `is_async`, at half of its cost."""
    executor = pywrap_tfe.TFE_ContextGetExecutorForThread(context._handle)
    try:
        return bool(pywrap_tfe.TFE_ExecutorIsAsync(executor))
    finally:
        pywrap_tfe.TFE_DeleteExecutor(executor)


def unrecorded_call(concrete: Any) -> Callable[[list[Any]], Any] | None:
    """What `_call_flat` of a ConcreteFunction comes to where `calls_are_plain`.

    Returns:
      A function of the EagerTensors that go in, captured ones last, which returns what the function
      returns. None where TensorFlow does more: for arguments and results that are composite or
      stand for resources, and for subclasses.
    """
    inference = concrete.inference_fn
    types = inference.function_type
    flat = [*types.flat_inputs, *types.flat_outputs]
    if type(concrete)._call_flat is not ConcreteFunction._call_flat or any(
        type(spec) is not _tensor.TensorSpec or spec.dtype.base_dtype in _HANDLES for spec in flat
    ):
        return None
    context, name, count = inference._bound_context, inference.name, len(types.flat_outputs)
    op_name = name.decode()

    def call(tensors: list[Any]) -> Any:
        options = context.function_call_options
        config, executor = options.config_proto_serialized, options.executor_type
        try:
            if _cancellation.context() is not None or config is None:
                outputs = context.call_function(name, tensors, count)
            else:  # what that comes to
                attrs = ("executor_type", executor or "", "config_proto", config)
                outputs = _execute.execute(op_name, count, tensors, attrs, context)
        except _errors.OpError:
            with _atomic_function.InterpolateRuntimeError(inference):  # adds lines of the user's
                raise
        return types.pack_output(outputs)

    return call


def captured_by(concrete: Any) -> list[Any]:
    """The EagerTensors that a ConcreteFunction has captured, deferred ones as they are now."""
    captured: list[Any] = concrete._captured_inputs
    for value in captured:
        if type(value) is not EagerTensor:
            return concrete.captured_inputs  # type: ignore[no-any-return]
    return captured


def exact_check(specs: list[Any]) -> Callable[[Any], bool]:
    """A function that tells whether values are EagerTensors, each just as its TensorSpec says.

    It is for the common case, and says no of tensors whose spec leaves a size open.
    """
    wanted = [
        (spec.dtype.as_datatype_enum, tuple(spec.shape) if spec.shape.is_fully_defined() else None)
        for spec in specs
    ]

    def fit(values: Any) -> bool:
        for value, (dtype, shape) in zip(values, wanted, strict=True):
            if (
                type(value) is not EagerTensor
                or value._datatype_enum() != dtype
                or value._shape_tuple() != shape
            ):
                return False
        return True

    return fit


def is_within(spec: Any, wanted: Any) -> bool:
    """Whether all values that one TypeSpec stands for are among those of another; names apart."""
    if isinstance(spec, _tensor.TensorSpec) and isinstance(wanted, _tensor.TensorSpec):
        same: bool = spec.dtype == wanted.dtype and spec.shape.is_subtype_of(wanted.shape)
        return same
    return bool(spec.is_subtype_of(wanted))


def paths_of(structure: Any) -> list[tuple[Any, ...]]:
    """The indices and keys that lead to each leaf of a structure."""
    return [path for path, _ in _nest.flatten_with_tuple_paths(structure)]


def parameter_names(concrete: Any) -> list[str]:
    """The names of the parameters of a ConcreteFunction, in order."""
    return list(concrete.function_type.parameters)


def on_forward_call(hook: Callable[[Any], None]) -> None:
    """Calls `hook` with the results of each function whose gradient a tape may ask for."""
    record = _concrete_function._ForwardBackwardCall.record

    @functools.wraps(record)
    def record_and_tell(self: Any, flat_outputs: Any) -> Any:
        hook(flat_outputs)
        return record(self, flat_outputs)

    _concrete_function._ForwardBackwardCall.record = record_and_tell


def on_error(hook: Callable[[Any, Any], None]) -> None:
    """Calls `hook` with each error of TensorFlow's that is made, and its message."""
    make = _errors.OpError.__init__

    @functools.wraps(make)
    def make_and_tell(
        self: Any, node_def: Any, op: Any, message: Any, error_code: Any, *args: Any
    ) -> None:
        make(self, node_def, op, message, error_code, *args)
        hook(self, message)

    _errors.OpError.__init__ = make_and_tell


def raise_instead(find: Callable[[Any], BaseException | None]) -> None:
    """Lets `find` name, for the error of a function or of a session's run, the one to raise."""
    _execute.execute = _raising(_execute.execute, find)
    _session.BaseSession.run = _raising(_session.BaseSession.run, find)


def _raising(function: F, find: Callable[[Any], BaseException | None]) -> F:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _errors.OpError as error:
            exception = find(error)
            if exception is None:
                raise
        except RuntimeError as error:
            # pybind11, of Ctrl-C that comes while it makes the exception of a failed call.
            if "REPLACED BY KeyboardInterrupt" not in str(error):
                raise
            exception = KeyboardInterrupt()
        raise exception

    return call  # type: ignore[return-value]


def on_saved(hook: Callable[[Any], None]) -> None:
    """Calls `hook` with the MetaGraphDef of every SavedModel that this process writes."""
    write = _save._build_meta_graph_impl

    @functools.wraps(write)
    def write_and_tell(*args: Any, **kwargs: Any) -> Any:
        written = write(*args, **kwargs)
        hook(written[0])
        return written

    _save._build_meta_graph_impl = write_and_tell


def nodes_of(graph_def: Any) -> Iterator[Any]:
    """The nodes of a GraphDef, those in its functions included."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def on_copied(hook: Callable[[Iterator[Any]], None]) -> None:
    """Calls `hook` with the nodes that are copied into the default graph, or some more."""
    load, lift = _importer._import_graph_def_internal, _lift_to_graph.lift_to_graph

    @functools.wraps(load)
    def load_and_tell(graph_def: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = load(graph_def, *args, **kwargs)
        if token_registry.size() or any_script_op():
            hook(nodes_of(graph_def))
        return loaded

    @functools.wraps(lift)
    def lift_and_tell(tensors: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        lifted = lift(tensors, graph, *args, **kwargs)
        kinds = {*SCRIPT_OPS, "XlaCallModule"}
        ops = [op for op in lifted.values() if getattr(op, "type", None) in kinds]
        with graph.as_default():
            hook(op.node_def for op in ops)
        return lifted

    _importer._import_graph_def_internal = load_and_tell
    _lift_to_graph.lift_to_graph = lift_and_tell


def stablehlo_of(concrete: Any, functions: list[Any], name: str) -> str:
    """The StableHLO that TensorFlow makes of a concrete function, as text.

    Args:
      concrete: whose arguments and captures it is compiled for.
      functions: FunctionDefs that the context lacks but for this call.
      name: the function that is compiled, which takes what `concrete` takes.

    Raises:
      ValueError, tf.errors.OpError: when XLA cannot compile it.
    """
    context = _context.context()
    context.ensure_initialized()
    new = [function for function in functions if not context.has_function(function.signature.name)]
    for function in new:
        context.add_function_def(function)
    try:
        arguments = _nest.flatten(concrete.structured_input_signature, expand_composites=True)
        text: bytes = context.get_compiler_ir(
            device_name="/job:localhost/replica:0/task:0/device:CPU:0",
            platform_name=None,
            function_name=name,
            flat_args=[a for a in arguments if isinstance(a, _tensor.TensorSpec)],
            captured_inputs=concrete.captured_inputs,
            stage="stablehlo",
        )
    finally:
        for function in new:
            context.remove_function(function.signature.name)
    return text.decode()


def refuse_gradient_of_modules() -> None:
    """Says, where TensorFlow knows no gradient of XlaCallModule, what to do about it."""
    with contextlib.suppress(LookupError):
        _ops.gradient_registry.lookup("XlaCallModule")
        return

    @_ops.RegisterGradient("XlaCallModule")  # type: ignore[untyped-decorator]
    def refuse(*_: Any) -> Any:
        raise LookupError(
            "hostcall: a gradient is asked for through a program that has none, by TensorFlow's op "
            "XlaCallModule; hostcall.load makes such ops of shipped programs. Export a function "
            "that computes the gradient, too; or, where none is needed, put tf.stop_gradient "
            "around the arguments."
        )


def call_module(tensors: list[Any], module: bytes, results: list[Any]) -> list[Any]:
    """The results of a StableHLO program that calls Python, an op of TensorFlow's.

    Args:
      tensors: its arguments.
      module: a portable artifact.
      results: their TensorSpecs.
    """
    called = gen_xla_ops.xla_call_module(
        tensors,
        version=9,  # from which on a token may be among the arguments and results
        module=module,
        Sout=[spec.shape for spec in results],
        Tout=[spec.dtype for spec in results],
        platforms=["CPU"],
        disabled_checks=["custom_call:hostcall"],
    )
    return list(called) if isinstance(called, list | tuple) else []


def function_of_context(name: str) -> Any:
    """The FunctionDef that the eager context has of that name, or None."""
    context = _context.context()
    return context.get_function_def(name) if context.has_function(name) else None


_owned: dict[str, list[str]] = {}


def own_functions(owner: str, functions: list[Any]) -> None:
    """Adds functions to the eager context's library, for as long as that has the function `owner`.

    Args:
      owner: a function's name; one that the context does not have owns nothing.
      functions: FunctionDefs.
    """
    context = _context.context()
    if not context.has_function(owner) or owner in _owned:
        return
    _owned[owner] = [function.signature.name for function in functions]
    for function in functions:
        context.add_function_def(function)


def remove_owned_functions() -> None:
    """Lets the functions that one owns be removed along with it."""
    remove = _context.Context.remove_function

    @functools.wraps(remove)
    def remove_with_owned(self: Any, name: Any) -> None:
        remove(self, name)
        owner = name.decode() if isinstance(name, bytes) else name
        if owner in _owned and not self.has_function(name):
            for owned in _owned.pop(owner):
                remove_with_owned(self, owned)  # a cluster may own some itself

    _context.Context.remove_function = remove_with_owned

"""Every private name of TensorFlow that hostcall uses, and the features that need them.

The list shows whether a new version of TensorFlow fits: `tests/unit/tf/test_names.py` has a test
for each name. A missing name switches only its own feature off.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NoReturn

import tensorflow as tf

from hostcall_runtime._patching import Name, StoredName


class MissingNameError(ImportError):
    """An error for a feature whose private names the installed TensorFlow lacks."""


@dataclasses.dataclass(eq=False)
class Feature:
    """A part of hostcall that private names of TensorFlow make possible."""

    title: str  # the purpose, as `hostcall doctor` lists it
    without: str  # the consequence if the feature is switched off
    essential: bool = False  # whether hostcall cannot be enabled without the feature
    missing: list[Name] = dataclasses.field(default_factory=list)  # those that TensorFlow lacks

    @property
    def available(self) -> bool:
        """True if TensorFlow has all names that the feature needs."""
        return not self.missing

    def require(self) -> None:
        """Raise a MissingNameError if the feature is not available."""
        if self.missing:
            raise MissingNameError(message(self), name="hostcall")


class Missing:
    """A stand-in for a name that TensorFlow lacks: its use raises an error that gives the name."""

    def __init__(self, name: Name, feature: Feature) -> None:
        self.name = name
        self._feature = feature

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise MissingNameError(message(self._feature), name="hostcall")

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise MissingNameError(message(self._feature), name="hostcall")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()  # lets hostcall define a subclass although TensorFlow's class is missing


def message(feature: Feature) -> str:
    """Return a text on a feature's missing names, the consequence, and the remedy."""
    missing = ", ".join(map(str, feature.missing))
    return (
        f"hostcall: TensorFlow {tf.__version__} lacks what hostcall needs for {feature.title}: "
        f"{missing}. Without it, {feature.without} Install a version of TensorFlow that this "
        "hostcall was made for, or a hostcall that was made for yours. `hostcall doctor` lists "
        "all names that hostcall needs."
    )


def warn_of_missing(features: list[Feature]) -> None:
    """Warn of each feature that is switched off; raise a MissingNameError for an essential one."""
    for feature in features:
        if feature.essential:
            feature.require()
        elif not feature.available:
            warnings.warn(message(feature), RuntimeWarning, stacklevel=2)


SCRIPT_OPS = Feature(
    "script ops in compiled functions",
    "hostcall stays disabled and TensorFlow behaves as if it was not imported.",
    essential=True,
)
TRACING = Feature(
    "shapes that set_shape gives, and the order of compiled functions",
    "tf.ensure_shape tells the compiler shapes and set_shape does not, and calls of compiled "
    "functions with side effects need tf.control_dependencies to run in the order of the program.",
)
GRADIENTS = Feature(
    "gradients of py_functions in compiled functions",
    "a gradient through a py_function raises an error.",
)
NESTED_GRADIENTS = Feature(
    "nested gradients of py_functions", "py_functions have first derivatives and no higher ones."
)
QUICK_GRADIENTS = Feature(
    "the short way of the gradients of py_functions",
    "they are right, and take longer where the function is small.",
)
RESIDUALS = Feature(
    "the end of what py_functions keep for gradients",
    "it is kept until the gradient is computed once, and for the latest calls only.",
)
EXCEPTIONS = Feature(
    "exceptions that live as long as TensorFlow's errors (hostcall.last_error)",
    "hostcall.last_error finds the exceptions of the latest 16 failures and no older ones.",
)
INTERRUPTS = Feature(
    "Ctrl-C in callbacks", "it raises an error of TensorFlow's instead of KeyboardInterrupt."
)
SAVED_MODELS = Feature(
    "SavedModels whose Python functions other processes find",
    "a SavedModel names its Python functions by numbers of the process that wrote it. It works in "
    "this process alone, as long as you keep the functions.",
)
OTHER_PROCESSES = Feature(
    "functions whose Python functions other processes of the job find",
    "compiled functions with script ops run in the process that has traced them, and not on "
    "workers.",
)
COPIED_GRAPHS = Feature(
    "copied graphs that keep their functions",
    "the functions of a graph that is imported, pruned or frozen must be kept by you.",
)
FIRST_CALLS = Feature(
    "variables that compiled functions create with initial values of their arguments",
    "such functions are errors of TensorFlow's, as without hostcall.",
)
REMOVED_FUNCTIONS = Feature(
    "the end of functions that hostcall has made of others",
    "they stay in memory until the process ends.",
)
CUSTOM_GRADIENTS = Feature(
    "the end of custom gradients", "they stay in memory until the process ends."
)
VECTORIZING = Feature(
    "script ops in tf.vectorized_map and in jacobians",
    "TensorFlow calls them in loops of its own, once more than there are elements.",
)
TRACEBACKS = Feature(
    "tracebacks without lines of hostcall", "tracebacks show some lines of hostcall, too."
)
LOCATIONS = Feature(
    "locations in code that autograph has converted",
    "messages may name lines of the copy that autograph made of your file.",
)
QUICK_CALLS = Feature(
    "quick calls of functions that autograph has converted",
    "calls of Python functions that are defined in a tf.function take longer.",
)
SPECS_IN_TOUT = Feature(
    "shapes in the Tout of a py_function",
    "tf.ensure_shape tells the compiler shapes of a py_function and Tout does not.",
)
PROGRAMS = Feature(
    "programs of StableHLO in functions (hostcall.load, hostcall.jax.to_tf)",
    "hostcall.load and hostcall.jax.to_tf raise an error when what they return is called.",
)
BOUND_CALLS = Feature(
    "the short way of bound functions (hostcall.bind)",
    "bound functions work, and their calls take as long as those of a ConcreteFunction.",
)
PLAIN_CALLS = Feature(
    "calls of compiled functions that run no Python of TensorFlow's",
    "calls of bound functions, and those that repeat an earlier one, take 10 to 30 us more.",
)
REPEATED_CALLS = Feature(
    "the short way of calls that repeat an earlier one",
    "calls of compiled functions take as long as TensorFlow's Python does.",
)
REWRITING = Feature(
    "functions rebuilt (hostcall.partition_pass)", "hostcall.partition_pass raises an error."
)
EXPORTING = Feature("exported programs (hostcall.export)", "hostcall.export raises an error.")
SAVED_MODEL_FILES = Feature(
    "SavedModels on the command line",
    "`hostcall explain` and `hostcall rewrite` raise an error; hostcall.explain works.",
)
ALL = [value for value in list(globals().values()) if isinstance(value, Feature)]

NAMES: list[Name] = []

_PYTHON = "tensorflow.python."
_CONTEXT = _PYTHON + "eager.context"
_OPS = _PYTHON + "framework.ops"
_SCRIPT_OPS = _PYTHON + "ops.script_ops"
_FUNCTION = _PYTHON + "eager.polymorphic_function."
_CONCRETE = _FUNCTION + "concrete_function"
_ATOMIC = _FUNCTION + "atomic_function"
_TFE = _PYTHON + "pywrap_tfe"
_REGISTRY = _PYTHON + "framework.registry"


def _find(feature: Feature, module: str, attribute: str = "", *members: str) -> Any:
    """Enter a name and some of its members; return the object with that name, or a stand-in."""
    found = _enter(feature, Name(module, attribute, feature.title, feature.without))
    _members(feature, module, attribute, *members)
    return found


def _members(feature: Feature, module: str, owner: str, *members: str) -> None:
    """Enter members of a class or, without an owner, of a module."""
    for member in members:
        path = f"{owner}.{member}" if owner else member
        _enter(feature, Name(module, path, feature.title, feature.without))


def _stored(feature: Feature, module: str, *attributes: str) -> None:
    """Enter names of attributes that a method sets on its objects."""
    for attribute in attributes:
        _enter(feature, StoredName(module, attribute, feature.title, feature.without))


def _enter(feature: Feature, name: Name) -> object:
    NAMES.append(name)
    try:
        return name.find()
    except (ImportError, AttributeError):
        feature.missing.append(name)
        return Missing(name, feature)


# Script ops: nothing works without these.
_E = SCRIPT_OPS
script_ops = _find(_E, _SCRIPT_OPS, "", "FuncRegistry.get")
internal_py_func = _find(_E, _SCRIPT_OPS, "_internal_py_func")
py_func_common = _find(_E, _SCRIPT_OPS, "py_func_common")
EagerFunc = _find(_E, _SCRIPT_OPS, "EagerFunc")
_stored(_E, _SCRIPT_OPS, "EagerFunc.__init__._func")
py_funcs = _find(_E, _SCRIPT_OPS, "_py_funcs")
functions_of_tokens = _find(_E, _SCRIPT_OPS, "_py_funcs._funcs")
to_array = _find(_E, _SCRIPT_OPS, "_py_funcs._convert")
next_unique_token = _find(_E, _SCRIPT_OPS, "FuncRegistry._next_unique_token")
copy_to_context_device = _find(_E, _SCRIPT_OPS, "_maybe_copy_to_context_device")
gen_script_ops = _find(_E, _PYTHON + "ops.gen_script_ops")
op_defs = _find(_E, _PYTHON + "framework.op_def_registry")

context = _find(_E, _CONTEXT, "context")
executing_eagerly = _find(_E, _CONTEXT, "executing_eagerly")
eager_mode = _find(_E, _CONTEXT, "eager_mode")
is_async = _find(_E, _CONTEXT, "is_async")
ensure_initialized = _find(_E, _CONTEXT, "ensure_initialized")
_members(_E, _CONTEXT, "Context", "has_function", "add_function_def", "get_function_def")

EagerTensor = _find(_E, _OPS, "EagerTensor", "_numpy")
convert_to_tensor = _find(_E, _OPS, "convert_to_tensor")
device = _find(_E, _OPS, "device")
get_default_graph = _find(_E, _OPS, "get_default_graph")
executing_eagerly_outside_functions = _find(_E, _OPS, "executing_eagerly_outside_functions")
_find(_E, _OPS, "Operation._set_attr")
_stored(_E, _OPS, "Graph.__init__._functions")
FuncGraph = _find(_E, _PYTHON + "framework.func_graph", "FuncGraph")
FuncGraphOfVersion1 = _find(_E, _PYTHON + "framework.function", "_FuncGraph")
_stored(_E, _PYTHON + "framework.function", "_FuncGraph.__init__._outer_graph")
convert_to_eager_tensor = _find(_E, _PYTHON + "framework.constant_op", "convert_to_eager_tensor")
ResourceVariable = _find(_E, _PYTHON + "ops.resource_variable_ops", "BaseResourceVariable")
is_trainable = _find(_E, _PYTHON + "eager.backprop_util", "IsTrainable")
has_no_tapes = _find(_E, _TFE, "TFE_Py_TapeSetIsEmpty")
tapes_are_stopped = _find(_E, _TFE, "TFE_Py_TapeSetIsStopped")
restart_tapes = _find(_E, _TFE, "TFE_Py_TapeSetRestartOnThread")
stop_tapes = _find(_E, _TFE, "TFE_Py_TapeSetStopOnThread")

ConcreteFunction = _find(_E, _CONCRETE, "ConcreteFunction")
CompositeTensor = _find(_E, _PYTHON + "framework.composite_tensor", "CompositeTensor")
type_spec_from_value = _find(_E, _PYTHON + "framework.type_spec", "type_spec_from_value")
flatten_up_to = _find(_E, _PYTHON + "util.nest", "flatten_up_to")
flatten_with_tuple_paths = _find(_E, _PYTHON + "util.nest", "flatten_with_tuple_paths")
convert_variables_to_tensors = _find(
    _E, _PYTHON + "util.variable_utils", "convert_variables_to_tensors"
)
attr_value_pb2 = _find(_E, "tensorflow.core.framework.attr_value_pb2")
function_pb2 = _find(_E, "tensorflow.core.framework.function_pb2")
node_def_pb2 = _find(_E, "tensorflow.core.framework.node_def_pb2")
tensor_pb2 = _find(_E, "tensorflow.core.framework.tensor_pb2")

# The end of a function's tracing.
_F = TRACING
transform = _find(_F, _FUNCTION + "transform", "", "FUNC_GRAPH_TRANSFORMS")
_find(_F, _OPS, "Operation._add_control_input")
_stored(_F, _OPS, "Operation._init._control_flow_context")
handle_data = _find(_F, _PYTHON + "ops.resource_variable_ops", "get_eager_safe_handle_data")

# The first call of a function.
_F = FIRST_CALLS
_POLYMORPHIC = _FUNCTION + "polymorphic_function"
PolymorphicFunction = _find(_F, _POLYMORPHIC, "Function", "_call")
_stored(_F, _POLYMORPHIC, "Function.__init__._function_type", "Function.__init__._default_values")
_stored(_F, _POLYMORPHIC, "Function.__init__._created_variables")
_stored(_F, _POLYMORPHIC, "Function._initialize._concrete_variable_creation_fn")

# Calls that repeat an earlier one.
_F = REPEATED_CALLS
_members(_F, _POLYMORPHIC, "Function", "_get_concrete_function_garbage_collected")
_stored(_F, _POLYMORPHIC, "Function.__init__._jit_compile", "Function.__init__._function_captures")
_find(_F, "tensorflow.core.function.capture.capture_container", "FunctionCaptures.capture_types")
in_save_context = _find(_F, _PYTHON + "saved_model.save_context", "in_save_context")
_members(_F, _OPS, "Graph", "_distribution_strategy_stack")
_members(_F, _OPS, "EagerTensor", "_copy_to_device", "backing_device")

# Gradients.
_F = GRADIENTS
tape_cache = _find(_F, _SCRIPT_OPS, "tape_cache")
gradient_registry = _find(_F, _OPS, "gradient_registry")
py_function_gradients = _find(_F, _OPS, "gradient_registry._registry")
TYPE_TAG = _find(_F, _REGISTRY, "_TYPE_TAG")
_stored(_F, _OPS, "Graph.__init__._gradient_override_map", "Operation._init._gradient_function")
_F = CUSTOM_GRADIENTS
custom_gradients = _find(_F, _OPS, "gradient_registry._registry")
CUSTOM_TYPE_TAG = _find(_F, _REGISTRY, "_TYPE_TAG")
_F = NESTED_GRADIENTS
pack_tangents = _find(_F, _PYTHON + "eager.forwardprop_util", "pack_tangents")
_UTIL = _PYTHON + "ops.gradients_util"
possible_gradient_types = _find(_F, _UTIL, "PossibleTapeGradientTypes")
NO_GRADIENT = _find(_F, _UTIL, "POSSIBLE_GRADIENT_TYPES_NONE")
FIRST_ORDER = _find(_F, _UTIL, "POSSIBLE_GRADIENT_TYPES_FIRST_ORDER")
HigherOrderFunctions = _find(
    _F, _CONCRETE, "_HigherOrderTapeGradientFunctions", "_forward_and_backward_functions"
)
_BACKPROP = _PYTHON + "eager.backprop"
_members(_F, _BACKPROP, "GradientTape", "_push_tape", "_pop_tape")
_F = QUICK_GRADIENTS
imperative_grad = _find(_F, _PYTHON + "eager.imperative_grad", "imperative_grad")
watch_tensor = _find(_F, _PYTHON + "eager.tape", "watch")
_stored(_F, _BACKPROP, "GradientTape.__init__._tape", "GradientTape.__init__._recording")
_F = RESIDUALS
_find(_F, _CONCRETE, "ConcreteFunction._call_flat")
ForwardBackwardCall = _find(_F, _CONCRETE, "_ForwardBackwardCall", "record")
Session = _find(_F, _PYTHON + "client.session", "BaseSession", "run")

# Loops over a batch that TensorFlow turns into ops of the whole batch.
_F = VECTORIZING
_PFOR = _PYTHON + "ops.parallel_for.pfor"
PFor = _find(_F, _PFOR, "PFor", "_convert_helper")
converters = _find(_F, _PFOR, "_pfor_converter_registry")
wrap_converted = _find(_F, _PFOR, "wrap")
ConversionNotImplementedError = _find(_F, _PFOR, "ConversionNotImplementedError")
_stored(_F, _PFOR, "PFor.__init__._pfor_ops", "PFor.__init__._warn")
_members(_F, _OPS, "Operation", "_id", "_remove_all_control_inputs", "_add_control_inputs")

# Errors.
_find(EXCEPTIONS, _PYTHON + "framework.errors_impl", "OpError.__init__")
_F = INTERRUPTS
execute = _find(_F, _PYTHON + "eager.execute", "", "execute")
BaseSession = _find(_F, _PYTHON + "client.session", "BaseSession", "run")
context_module = _find(_F, _CONTEXT, "", "_context")
_find(_F, _SCRIPT_OPS, "FuncRegistry._ctx")
_stored(_F, _CONTEXT, "Context.__init__._context_handle")
traceback_utils = _find(TRACEBACKS, _PYTHON + "util.traceback_utils", "", "_EXCLUDED_PATHS")

# Saved, copied and removed graphs and functions.
_F = SAVED_MODELS
_SAVED = _PYTHON + "saved_model."
save = _find(_F, _SAVED + "save", "", "_build_meta_graph_impl", "save_and_return_nodes")
_BUILDER = _SAVED + "builder_impl"
SavedModelBuilder = _find(_F, _BUILDER, "_SavedModelBuilder", "_tag_and_add_meta_graph")
_stored(_F, _BUILDER, "_SavedModelBuilder.__init__._export_dir")
graph_io = _find(_F, _PYTHON + "framework.graph_io", "", "write_graph")
loader = _find(_F, _SAVED + "loader_impl", "", "parse_saved_model")
encode_structure = _find(_F, _SAVED + "nested_structure_coder", "encode_structure")
decode_structure = _find(_F, _SAVED + "nested_structure_coder", "decode_proto")
struct_pb2 = _find(_F, "tensorflow.core.protobuf.struct_pb2")
_F = OTHER_PROCESSES
atomic_function = _find(_F, _ATOMIC, "", "from_func_graph")
_members(_F, _OPS, "Operation", "_clear_attr")
ExtendedSession = _find(_F, _PYTHON + "client.session", "BaseSession", "_extend_graph")
_F = COPIED_GRAPHS
importer = _find(_F, _PYTHON + "framework.importer", "", "_import_graph_def_internal")
lift_to_graph = _find(_F, _PYTHON + "eager.lift_to_graph", "", "lift_to_graph")
Context = _find(REMOVED_FUNCTIONS, _CONTEXT, "Context", "remove_function")

# Code that autograph has generated.
_F = LOCATIONS
autograph_api = _find(_F, _PYTHON + "autograph.impl.api")
extract_stack = _find(_F, _PYTHON + "util.tf_stack", "extract_stack")
source_mappers = _find(_F, _PYTHON + "util.tf_stack", "_source_mapper_stacks")
_F = QUICK_CALLS
autograph_statuses = _find(_F, _PYTHON + "autograph.core.ag_ctx", "_control_ctx")
ControlStatusCtx = _find(_F, _PYTHON + "autograph.core.ag_ctx", "ControlStatusCtx")
AUTOGRAPH_DISABLED = _find(_F, _PYTHON + "autograph.core.ag_ctx", "Status.DISABLED")
_F = SPECS_IN_TOUT
_TRACED = "_create_concrete_function"
create_concrete_function = _find(_F, _FUNCTION + "tracing_compilation", _TRACED)
_stored(_F, _FUNCTION + "tracing_compilation", f"{_TRACED}.tracing_options")
_stored(_F, _FUNCTION + "tracing_compilation", f"{_TRACED}.func_graph")
XLA_COMPILE = _find(_F, _FUNCTION + "attributes", "XLA_COMPILE")

# Calls without TensorFlow's dispatch.
_F = BOUND_CALLS
has_default_graph = _find(_F, _OPS, "has_default_graph")
executor_for_thread = _find(_F, _TFE, "TFE_ContextGetExecutorForThread")
executor_is_async = _find(_F, _TFE, "TFE_ExecutorIsAsync")
delete_executor = _find(_F, _TFE, "TFE_DeleteExecutor")
execution = _find(_F, _PYTHON + "eager.execute", "", "execute")
cancellation_context = _find(_F, _PYTHON + "eager.cancellation", "context")
InterpolateRuntimeError = _find(_F, _ATOMIC, "InterpolateRuntimeError")
_members(_F, _CONTEXT, "Context", "_handle", "call_function", "function_call_options")
_find(_F, _ATOMIC, "AtomicFunction._bound_context")
_members(_F, _CONCRETE, "ConcreteFunction", "inference_fn", "_call_flat")
_members(_F, _OPS, "EagerTensor", "_datatype_enum", "_shape_tuple")
_stored(_F, _CONCRETE, "ConcreteFunction.__init__._captured_inputs")
_F = PLAIN_CALLS
default_graphs = _find(_F, _OPS, "_default_graph_stack", "stack")
cancellation = _find(_F, _PYTHON + "eager.cancellation", "", "_active_context")
quick_execute = _find(_F, _PYTHON + "eager.execute", "quick_execute")
_stored(_F, _CONTEXT, "Context.__init__._context_handle")
_stored(_F, _CONTEXT, "Context.__init__._thread_local_data")
_members(_F, _CONTEXT, "FunctionCallOptions", "_config_proto_serialized", "_executor_type")
_members(_F, _CONTEXT, "Context", "device_name")

# Rebuilt functions, and exported and embedded programs.
_F = REWRITING
restore_captures = _find(
    _F, "tensorflow.core.function.capture.restore_captures", "restore_captures"
)
_DESERIALIZATION = _SAVED + "function_deserialization"
load_function_library = _find(_F, _DESERIALIZATION, "load_function_def_library")
_members(_F, _CONCRETE, "ConcreteFunction", "from_func_graph", "set_variables")
_INIT = "ConcreteFunction.__init__"
_stored(_F, _CONCRETE, f"{_INIT}._arg_keywords", f"{_INIT}._num_positional_args")
_F = EXPORTING
_find(_F, _CONTEXT, "Context.get_compiler_ir")
_stored(_F, _FUNCTION + "polymorphic_function", "Function.__init__._autograph")
parse_saved_model = _find(SAVED_MODEL_FILES, _SAVED + "loader_impl", "parse_saved_model")
_F = PROGRAMS
xla_call_module = _find(_F, "tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_call_module")
_find(_F, _OPS, "Graph._attr_scope")

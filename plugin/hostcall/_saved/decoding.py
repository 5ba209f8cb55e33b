"""Decoding: makes specs of this process from the records in saved graphs.

A model is checked when it is loaded: a warning lists the Python functions that cannot be called.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

import tensorflow as tf

from hostcall._functions import callback
from hostcall._functions.declarations import declaration_of
from hostcall._functions.options import Options, check_no_results
from hostcall._functions.user_function import CALLBACK, NUMPY_FUNCTION, PY_FUNCTION, UserFunction
from hostcall._ops import array_specs, lookup, result_shapes
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec
from hostcall._ops.emit.gradients import GradientSpec, RecomputingSpec
from hostcall._ops.structures import Inputs, Outputs
from hostcall._saved import functions, pickled_functions, tokens
from hostcall._tf import relayed_handlers, script_op_graphs, token_registry
from hostcall._tf.graph import function_edits, op_kinds
from hostcall_runtime import _locks

_WARNING = """\
hostcall: {path} calls Python functions that cannot be called here yet:

{listed}

The rest of it works. Before these are called, if you trust the file:

{lines}"""

_NO_HANDLERS = """\
hostcall: {path} makes custom calls of a JAX program, {targets}, whose handlers are missing here.
{why}
The rest of it works."""

_UNNAMED = tokens.Problem(
    "the file has no name for it", "# save the model again, with hostcall imported"
)
_DAMAGED = "# save the model again"


def check(model: Any, path: str) -> None:
    """Warn of the functions of a SavedModel that cannot be called here, in one warning."""
    # This is not an error: the user may want only variables, other signatures or parts of it. A
    # function can also be allowed or provided until its first call, which raises the error. Nothing
    # is imported or unpickled. If the user allows pickles, the model's tokens are changed to say
    # so, and it is a SavedFunctionError that one is missing or was altered.
    _provide_handlers(model, path)
    problems: dict[str, tokens.Problem] = {}
    for graph in model.meta_graphs:
        function_edits.drop_programs(graph.graph_def.library)  # the kernel hook makes its own
    for token, nodes in _nodes_by_token(model).items():
        label, problem, here = _checked(token, nodes, path)
        if problem is not None:
            problems.setdefault(label, problem)
        if here != token:
            for node in nodes:
                node.attr["token"].s = here.encode()
    if not problems:
        return
    listed = "\n".join(f"  - {label}: {problem.reason}" for label, problem in problems.items())
    lines = "\n".join({f"    {problem.line}": None for problem in problems.values()})
    warnings.warn(_WARNING.format(path=path, listed=listed, lines=lines), UserWarning, stacklevel=2)


def _provide_handlers(model: Any, path: str) -> None:
    """Register the handlers that programs of `to_tf` call, or warn of those that are missing."""
    wanted = {
        target
        for graph in model.meta_graphs
        for node in script_op_graphs.nodes_of(graph.graph_def)
        for target in relayed_handlers.targets_of(node)
    }
    if not wanted:
        return
    try:
        found = relayed_handlers.provide(wanted)
        why = (
            "They were the user's own: call jax.ffi.register_ffi_target with each, before the "
            "model is loaded."
        )
    except ImportError as error:
        found, why = (), f"They are jaxlib's ({error}): pip install jax."
    except NotImplementedError as error:
        found, why = (), str(error)
    if missing := sorted(wanted.difference(found)):
        text = _NO_HANDLERS.format(path=path, targets=", ".join(missing), why=why)
        warnings.warn(text, UserWarning, stacklevel=3)


def _nodes_by_token(model: Any) -> dict[str, list[Any]]:
    """Return the script ops in a SavedModel, by their tokens."""
    found: dict[str, list[Any]] = {}
    for graph in model.meta_graphs:
        for node in script_op_graphs.nodes_of(graph.graph_def):
            if node.op in op_kinds.SCRIPT_OPS:
                found.setdefault(lookup.token_of(node), []).append(node)
    return found


def _checked(token: str, nodes: list[Any], path: str) -> tuple[str, tokens.Problem | None, str]:
    """Return a function's label for messages, the problem with it, and its token here."""
    if token_registry.find_present(token) is not None:
        return token, None, token
    label, record, problem = _read(token, nodes)
    if record is None:
        return label, problem, token
    if (pickled := record.users.pickled) is not None:
        record, problem = _with_leave(record, pickled, path)
        token = tokens.encode(record)
    at = f", called at {record.root.at}" if record.root.at else ""
    return f"{label}{at}", problem or functions.problem_of(record.users), token


def judged(
    token: str, node: object, directory: str | None
) -> tuple[str, tokens.Record | None, tokens.Problem | None]:
    """Judge the token of a script op in a file, whether the user allows pickles now or not."""
    # The SavedModel's directory holds the pickles. Return the function's label for messages, its
    # record or None, and the problem that prevents calls of it or None.
    label, record, problem = _read(token, [node])
    if record is None:
        return label, None, problem
    record = record.with_leave("")
    if (pickled := record.users.pickled) is not None and directory is not None:
        problem = pickled_functions.read_pickle(pickled.sha256, directory)
    return label, record, problem or functions.problem_of(record.users)


def _read(token: str, nodes: list[Any]) -> tuple[str, tokens.Record | None, tokens.Problem | None]:
    """Return a function's label, the record in the token of some ops, and the problem if none."""
    if not token_registry.is_qualified(token):
        return token, None, _UNNAMED
    try:
        record = tokens.decode(token)
        for node in nodes:
            _check_op(record, node)
    except tokens.SavedFunctionError as error:
        shown = token if len(token) <= 40 else f"{token[:40]}..."
        return shown, None, tokens.Problem(str(error), _DAMAGED)
    return record.users.label, record, None


def _with_leave(
    record: tokens.Record, pickled: tokens.Pickled, path: str
) -> tuple[tokens.Record, tokens.Problem | None]:
    """Return the record, whose pickle may be called if the user permits it, and the problem."""
    problem = pickled_functions.read_pickle(pickled.sha256, path)
    if not pickled_functions.allows_pickles.get():
        return record.with_leave(""), problem
    if problem is not None:
        raise tokens.SavedFunctionError(
            f"hostcall: {path} cannot be loaded with allow_pickle=True. Of the Python function "
            f"{pickled.title}, {problem.reason}. Nothing was run."
        )
    return record.with_leave(pickled_functions.leave_for(pickled.sha256)), None


def _check_op(record: tokens.Record, node: Any) -> None:
    """Check that the function in a token fits the op; in an altered graph it may not."""
    of_tensors = node.op == op_kinds.EAGER_PY_FUNC
    count = len(node.attr["Tin"].list.type)
    if (record.kind != "numpy") != of_tensors:
        takes, has = ("tensors", "arrays") if of_tensors else ("arrays", "tensors")
        wrong = f"calls a function of {takes}, and its token names one of {has}"
    elif isinstance(record.inputs, int) and record.inputs != count:
        wrong = f"has {count} inputs, and its token names a function of {record.inputs}"
    else:
        return
    raise tokens.SavedFunctionError(
        f"hostcall: the graph was damaged or altered: op '{node.name}' ({node.op}) {wrong}, "
        f"{record.users.label}"
    )


def spec_of_call(record: tokens.Record) -> CallbackSpec:
    """Return the spec of a saved function, which this may import."""
    assert record.function is not None
    found, carried = functions.saved_function(record.function, record.at)
    function = getattr(found, "__hostcall_function__", found)
    here = getattr(found, "__hostcall_declaration__", None) or declaration_of(function)
    inputs, outputs = _inputs(record), Outputs(tokens.from_json(record.outputs), record.callback)
    options = _options(record, here, carried)
    called, options = _with_keywords(record.function, function, options, inputs.count)
    try:
        check_no_results(options.call_log, outputs.dtypes, True, record.users.label)
    except ValueError as error:  # the graph itself is intact
        raise tokens.SavedFunctionError(str(error)) from None
    shape_function = result_shapes.make_shape_function(options, called, inputs, outputs)
    for _ in record.levels:
        shape_function = array_specs.shapes_of_batch(shape_function, [None] * len(outputs.dtypes))
    user = _user_function(record, called, options)
    place: dict[str, Any] = {"route": record.route, "levels": tuple(record.levels)}
    kind: type[CallbackSpec] = array_specs.class_for(user)
    if record.kind == "eager":
        kind = EagerSpec
        place |= {"differentiable": record.differentiable, "pure": options.pure}
    spec = kind(user, inputs, outputs, shape_function, **place)
    _complete(spec, record)
    return spec


def _user_function(record: tokens.Record, called: Any, options: Options) -> UserFunction:
    assert record.function is not None
    is_eager = record.kind == "eager"
    stock = PY_FUNCTION if is_eager else NUMPY_FUNCTION
    return UserFunction(
        called,
        options,
        called_as=CALLBACK if record.callback else stock,
        takes_tensors=is_eager,
        owns_arguments=record.copies,
        given_name=record.function.name,
    ).described(record.at)


def spec_of_gradient(record: tokens.Record, parent: Any) -> CallbackSpec:
    """Return the spec of a saved gradient of the function with the spec `parent`."""
    specs = tokens.from_json(record.outputs)
    if not isinstance(specs, list) or not all(isinstance(one, tf.TensorSpec) for one in specs):
        raise ValueError("the results of a gradient are not a list of specs")
    kind = GradientSpec if record.kind == "gradient" else RecomputingSpec
    inputs = _inputs(record)
    spec: EagerSpec = kind(parent, inputs.flat, record.targets, record.sources, specs)
    spec.gradient_wanted = record.recorded
    return spec


def _inputs(record: tokens.Record) -> Inputs:
    if isinstance(record.inputs, int):
        return Inputs([None] * min(record.inputs, 100_000), False)
    structure = tokens.from_json(record.inputs)
    if not isinstance(structure, list):
        raise ValueError("the arguments are not a list")
    return Inputs(structure, record.kind == "eager")


def _with_keywords(
    saved: tokens.FunctionRecord, function: Any, options: Options, count: int
) -> tuple[Any, Options]:
    """Return a callable that takes all its arguments by position, and its declaration."""
    if not (saved.keywords or saved.fixed):
        return function, options
    fixed = {name: ast.literal_eval(text) for name, text in saved.fixed.items()}
    arguments = callback.saved_arguments(function, count, tuple(saved.keywords), fixed)
    called: Any = arguments.of_function(function)
    return called, options.of_call(arguments.of_shape_function(options.result), called.key)


def _complete(spec: CallbackSpec, record: tokens.Record) -> None:
    spec.static_specs = _specs(record.static, spec)
    spec.plain_specs = _specs(record.plain, spec)
    count = len(spec.outputs.dtypes)
    if len(record.consumers) == count:
        spec.consumer_shapes = [tf.TensorShape(shape) for shape in record.consumers]
    if len(record.counts) == count:
        spec.element_counts = list(record.counts)
    spec.shape_reasons = list(record.reasons)
    if isinstance(spec, EagerSpec):
        spec.orders_wanted = record.orders
        spec.gradient_wanted = record.recorded


def _specs(written: list[Any], spec: CallbackSpec) -> list[Any]:
    specs = [tokens.from_json(one) for one in written]
    if [getattr(one, "dtype", None) for one in specs] != spec.outputs.dtypes:
        raise ValueError("the specs of the results are not those of the results")
    return specs


def _options(record: tokens.Record, here: Options | None, carried: Any) -> Options:
    """Return the declaration of this process or, without one, the saved declaration."""
    saved = record.declared
    result = saved.result
    if isinstance(result, list):
        result = [tokens.from_json(one) for one in result]
    if result is None:
        result = carried
    then = Options(result, **{name: getattr(saved, name) for name in tokens.OPTIONS})
    if here is None:
        return then
    if differing := _differences(saved, here, result):
        warnings.warn(
            f"hostcall: {record.users.label}, which a graph from another process calls, is "
            f"declared differently here than where the graph was made: {'; '.join(differing)}. "
            "The declaration here counts.",
            UserWarning,
            stacklevel=2,
        )
    return here


def _differences(saved: tokens.Declared, here: Options, result: object) -> list[str]:
    differing = [
        f"{name}={getattr(here, name)!r} here, and {getattr(saved, name)!r} there"
        for name in tokens.OPTIONS
        if getattr(here, name) != getattr(saved, name)
    ]
    ours = here.result
    if isinstance(result, list) and ours is not None and not isinstance(ours, str):
        said = None if callable(ours) else _flat(ours, [one.dtype for one in result])
        if said is not None and said != result:
            differing.append(f"result={said} here, and {result} there")
    return differing


def _flat(result: object, dtypes: list[Any]) -> object:
    try:
        return result_shapes.flatten_result(result, dtypes)
    except (TypeError, ValueError):
        return result


# Specs by token, kept for good: a graph with the same tokens may be loaded at any time.
_resolved: dict[str, Any] = {}
_lock = _locks.new_lock()


def resolve(token: str) -> Any:
    """Return the spec for another process's token, None for ours, or raise a SavedFunctionError."""
    if token_registry.is_of_other_process(token):
        raise tokens.SavedFunctionError(
            f"hostcall: Could not find callback with key={token} in the registry. The graph comes "
            "from another process, which had no name for this Python function: it is a lambda, a "
            "function in a function, a method of an object, or from the script that ran there. "
            "Define it at the top level of a module that this process can import, too. Or give it "
            "a name there, and a function for the name here:\n\n"
            '    hostcall.register(function, "mymodel::function")\n'
            '    hostcall.provide("mymodel::function", function)'
        )
    if not token_registry.is_qualified(token):
        return None
    # Not under the lock: the import may wait for an import on a thread that waits for the lock.
    spec = _rebuilt(token)
    with _lock:
        kept = _resolved.setdefault(token, spec)
        token_registry.register_token(token, kept)
        if not token_registry.is_own(token):
            token_registry.register_token(kept.title, kept)
    return kept


def keep(token: str, spec: Any) -> None:
    """Make a qualified token stand for a spec of this process until the process ends."""
    with _lock:
        _resolved[token] = spec
        token_registry.register_token(token, spec)


def _rebuilt(token: str) -> CallbackSpec:
    record = tokens.decode(token)
    try:
        if record.of is None:
            spec = spec_of_call(record)
        else:
            parent = _resolved.get(tokens.encode(record.of)) or resolve(tokens.encode(record.of))
            spec = spec_of_gradient(record, parent)
    except tokens.SavedFunctionError:
        raise
    except (TypeError, ValueError, SyntaxError, RecursionError, OverflowError) as error:
        raise tokens.SavedFunctionError(
            f"hostcall: the graph was damaged or altered: what it says of the Python function "
            f"{record.users.label} makes no sense: {error}"
        ) from error
    spec.saved = record
    spec.title = token_registry.title_of(token)
    return spec

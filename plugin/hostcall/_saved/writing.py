"""The naming of script ops in graphs that are traced or saved.

Another process of the job may run a traced function, on a worker or in a tf.data service, and any
process may load a saved graph. So script ops get tokens by which any process finds the functions.
A token holds the record of a spec of this process.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import itertools
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import tensorflow as tf

from hostcall._functions import callback, declarations, native_code, source_location
from hostcall._ops import lookup
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec, NumpySpec
from hostcall._ops.emit.gradients import GradientSpec, RecomputingSpec
from hostcall._ops.result_shapes import flatten_result
from hostcall._ops.structures import is_shape_function
from hostcall._saved import decoding, pickled_functions, server_programs, tokens
from hostcall._saved.functions import qualified_name, reason
from hostcall._tf import script_op_graphs, token_registry
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.types import Graph, MetaGraphDef
from hostcall_runtime import _locks

_lock = _locks.new_lock()


def name_traced_functions(graph: Graph) -> None:
    """Give a function's script ops tokens for any process, if their functions have names."""
    for op in script_op_graphs.script_ops_of(graph):
        _name_op(op)


def name_new_functions(graph: Graph) -> None:
    """Name the new ops of a session's graph, which cannot be changed any more once they ran."""
    with _lock:  # a second thread sends the ops when this returns, so it waits for the first
        for op in script_op_graphs.new_script_ops_of(graph):
            _name_op(op)


def _name_op(op: Any) -> None:
    token = op.get_attr("token").decode(errors="replace")
    if token_registry.is_qualified(token) and not token_registry.is_own(token):
        return  # the op comes from a loaded graph
    spec = token_registry.find_present(token)
    if spec is None:
        return
    try:
        with pickled_functions.save_options(pickle=False):  # other processes lack this one's files
            written = tokens.encode(record_of(spec, asked_so_far))
    except tokens.UnwritableError:
        return
    token_registry.register_token(written, spec)
    if written != token:
        protos.set_attr(op, "token", s=written.encode())


_UNNAMED = """\
hostcall: a {what} is written, and another process could not find these Python functions in it:

{listed}

Here the {what} works. For other processes, define each at the top level of a module that they can
import, or give it a name before it is written, and a function for the name where it is loaded:

{lines}"""

_OR_PICKLES = """

Or have the model carry them as pickles: hostcall.save_options(pickle=True)."""

_UNPICKLABLE = """\
hostcall: a SavedModel is to carry Python functions as pickles, and these cannot be pickled:

{listed}

Take out what cannot be pickled, or give the function a name by hostcall.register instead."""

# A function without a name: its token, its entry in TensorFlow's registry, and the reason.
_Unnamed = tuple[str, Any, str]

T = TypeVar("T")

# Functions that SavedModels name by tokens of this process: kept until the process ends.
_pinned: dict[str, Any] = {}


def name_in_saved_model(meta_graph: MetaGraphDef, directory: str | None) -> None:
    """Give the script ops of a MetaGraphDef tokens by which any process finds their functions."""
    # Ops whose functions have no name keep their tokens, and a warning lists the functions. Pickles
    # go into the SavedModel's directory, which is None for a graph that goes elsewhere. It is a
    # ValueError that a function cannot be pickled, or that the graph holds a StableHLO program
    # which calls Python: the program's numbers mean other functions in another process.
    # A server without hostcall's pass would compile replaced nodes beside their replacements.
    function_edits.drop_replaced(meta_graph.graph_def.library)
    nodes = list(script_op_graphs.nodes_of(meta_graph.graph_def))
    _refuse_modules(nodes)
    programs = server_programs.programs_of(meta_graph.graph_def)
    unnamed = _name([*nodes, *server_programs.nodes_of(programs)], directory)
    server_programs.attach(meta_graph.graph_def, programs)
    _pinned.update((token, entry) for token, entry, _ in unnamed)
    _warn("SavedModel", unnamed, _OR_PICKLES)


def name_functions(graph_def: T) -> T:
    """Give the Python functions in a graph names by which other processes find them.

    SavedModels and the files of `tf.io.write_graph` and `tf.compat.v1.train.Saver` get the names
    anyway. Call this for graphs that are written in another way.

    Args:
      graph_def: a `GraphDef` or a `MetaGraphDef`, which is not changed.

    Returns:
      A copy, or `graph_def` itself if it calls no Python. Functions that can get no name stay as
      they are, and a warning lists them.

    Examples:
      >>> with tf.Graph().as_default() as graph:
      ...     y = tf.numpy_function(np.sort, [tf.constant([3.0, 1.0])], tf.float32, name="y")
      >>> data = hostcall.name_functions(graph.as_graph_def()).SerializeToString()
    """
    named, unnamed = _named(graph_def)
    _warn("graph", unnamed, "")
    return named


def named_silently(graph_def: T) -> T:
    """Do the same as `name_functions` without a warning: the graph may never run elsewhere."""
    return _named(graph_def)[0]


def _named(graph_def: T) -> tuple[T, list[_Unnamed]]:
    if not any(node.op in op_kinds.SCRIPT_OPS for node in _nodes_of(graph_def)):
        return graph_def, []  # no copy: the graph may be large
    copy = protos.copy_of(graph_def)
    with pickled_functions.save_options(pickle=False):
        return copy, _name(list(_nodes_of(copy)), None)


def _nodes_of(graph_def: Any) -> Iterator[Any]:
    return script_op_graphs.nodes_of(getattr(graph_def, "graph_def", graph_def))


def _name(nodes: list[Any], directory: str | None) -> list[_Unnamed]:
    """Give script ops among nodes qualified tokens; return the functions that have no name."""
    nodes = [node for node in nodes if node.op in op_kinds.SCRIPT_OPS]
    entries = {token: token_registry.find_present(token) for token in map(lookup.token_of, nodes)}
    asked = asked_of(list(entries.values()))
    unnamed: list[_Unnamed] = []
    unpicklable: dict[tuple[str, str], None] = {}
    written: dict[str, str] = {}
    for token, entry in entries.items():
        try:
            written[token] = _qualified(token, entry, asked, directory)
        except tokens.UnwritableError as error:
            unnamed.append((token, entry, str(error)))
        except pickled_functions.UnpicklableError as error:
            unpicklable[_described(token, entry), str(error)] = None
    if unpicklable:
        listed = (f"  - {which}:\n" + textwrap.indent(why, "      ") for which, why in unpicklable)
        raise ValueError(_UNPICKLABLE.format(listed="\n".join(listed)))
    for node in nodes:
        token = lookup.token_of(node)
        if token in written:  # other tokens may not be valid text
            node.attr["token"].s = written[token].encode()
    return unnamed


def _qualified(token: str, entry: object, asked: Asked, directory: str | None) -> str:
    if entry is None:
        if not token_registry.is_qualified(token):
            raise tokens.UnwritableError("it does not exist any more, here either")
        return _qualified_before(token, directory)
    record = record_of(entry, asked).with_leave("")
    _carry(record, directory)
    written = tokens.encode(record)
    decoding.keep(written, entry)
    return written


def _qualified_before(token: str, directory: str | None) -> str:
    """Return the token for an op of a loaded graph whose function has not been called yet."""
    try:
        record = tokens.decode(token).with_leave("")
    except tokens.SavedFunctionError:
        return token
    if record.users.pickled is None:
        return token
    _carry(record, directory)
    return tokens.encode(record)


def _carry(record: tokens.Record, directory: str | None) -> None:
    pickled = record.users.pickled
    if pickled is None:
        return
    if directory is None:
        raise tokens.UnwritableError("only a SavedModel can carry its pickle")
    if not pickled_functions.write_pickle(pickled.sha256, directory):
        raise tokens.UnwritableError("its pickle is not here: only a SavedModel carries it")


def _described(token: str, entry: Any) -> str:
    if isinstance(entry, CallbackSpec):
        return entry.description
    if entry is None:
        return f"the function with the key {token}"
    return source_location.of_function(getattr(entry, "_func", entry))


def _warn(what: str, functions: list[_Unnamed], more: str) -> None:
    if not functions:
        return
    unnamed = {_described(token, entry): reason for token, entry, reason in functions}
    listed = "\n".join(f"  - {which}: {reason}" for which, reason in unnamed.items())
    names = {_name_in(description): None for description in unnamed}
    lines = "\n".join(
        f'    hostcall.register({name}, "mymodel::{name}")      # here\n'
        f'    hostcall.provide("mymodel::{name}", {name})       # there'
        for name in names
    )
    text = _UNNAMED.format(what=what, listed=listed, lines=lines) + more
    warnings.warn(text, UserWarning, stacklevel=3)


def _name_in(description: str) -> str:
    """Return a name for a function in the lines that the user is to write."""
    name = source_location.split_description(description)[1].rpartition(".")[2]
    return name if name.isidentifier() else "function"


def _refuse_modules(nodes: list[Any]) -> None:
    if any(attributes.CALLS_PYTHON in node.attr for node in nodes):
        raise ValueError(
            "hostcall: a SavedModel is written of a function that calls a JAX function with "
            "callbacks, by hostcall.jax.to_tf, or an exported program, by hostcall.load. A "
            "SavedModel holds no Python code, and nothing could call it when it is read back. Save "
            "the model without that function: an exported program has files of its own, and can be "
            "loaded beside the SavedModel."
        )


# Trial values for unknown input sizes: the first size, and the step to the next one. A shape
# function's results in all trials show whether a result size equals an input size or is constant.
# Growing and falling sizes tell an input size from a maximum or minimum of sizes; equal and tiny
# sizes tell it from sizes with a lower bound.
_TRIED = (
    *((3, 2), (5, 7), (64, 1), (1031, 4099), (100_003, 7919)),
    *((1_000_003, -7919), (4096, -1), (0, 0), (1, 0), (2, 0), (0, 1), (1, -1)),
)


def record_of_native(spec: CallbackSpec) -> tokens.NativeRecord | None:
    """Return the record of a spec's native code; None if no library holds the code."""
    function = spec.function
    if not isinstance(function, native_code.Native):
        return None
    place = _library_and_symbol(function.code.address)
    if place is None:
        return None
    code, sizes = function.code, None
    if spec.shape_function is not None:
        sizes = sizes_of(spec.shape_function, _inputs(spec))
    if isinstance(code, native_code.CFunction):
        count = len(code.pointers) + code.sizes
        return tokens.NativeRecord(*place, "c", sizes, count, code.sizes > 0, code.returns_status)
    attributes = [
        tokens.Attribute(name, dtype, base64.b64encode(value).decode())
        for name, dtype, value in code.attributes
    ]
    return tokens.NativeRecord(*place, "ffi", sizes, attributes=attributes)


def name_of(native: tokens.NativeRecord) -> str:
    """Return the default name of native code, such as `libsignal.so::smooth`."""
    return f"{native.library.rpartition('/')[2]}::{native.symbol}"


class _Symbol(ctypes.Structure):
    """The struct `Dl_info`, which `dladdr` fills in."""

    _fields_ = (
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_and_symbol(address: int) -> tuple[str, str] | None:
    """Return the library that holds the code at an address, and the code's symbol there."""
    found = _Symbol()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return None  # generated in memory, as by Numba
    if not found.library or not found.name or found.address != address:
        return None
    return found.library.decode(errors="replace"), found.name.decode(errors="replace")


_ShapeFunction = Callable[[Sequence[tf.TensorSpec]], Sequence[tf.TensorSpec | None]]


def sizes_of(
    shape_function: _ShapeFunction, inputs: Sequence[tf.TensorSpec]
) -> list[list[tokens.Size]] | None:
    """Return each result's shape as constants and input sizes, by trials of a shape function."""
    # A shape function is the user's code, and may raise any exception.
    with contextlib.suppress(Exception):
        tries = [_try(shape_function, inputs, *numbers) for numbers in _TRIED]
        known, results = ([one[side] for one in tries] for side in (0, 1))
        # The inputs' sizes by their values in all trials; of equal ones the first.
        sources: dict[tuple[int, ...], tokens.Size] = {}
        for number, shapes in enumerate(zip(*known, strict=True)):
            for dimension, values in enumerate(zip(*shapes, strict=True)):
                sources.setdefault(values, tokens.Size(input=number, dimension=dimension))
        return [
            [
                tokens.Size(values[0]) if len({*values}) == 1 else sources[values]
                for values in zip(*shapes, strict=True)
            ]
            for shapes in zip(*results, strict=True)
        ]
    return None  # also where a rank changes, or a size is that of no input


def _inputs(spec: CallbackSpec) -> list[tf.TensorSpec]:
    """Return the specs of the op's inputs; an empty list without an op or with unknown ranks."""
    op = None if spec.op is None else spec.op()
    if op is None or any(one.shape.rank is None for one in op.inputs):
        return []
    return [tf.TensorSpec(one.shape, one.dtype) for one in op.inputs]


_Shapes = list[list[int]]


def _try(
    shape_function: _ShapeFunction, inputs: Sequence[tf.TensorSpec], first: int, step: int
) -> tuple[_Shapes, _Shapes]:
    """Return input shapes with trial values for unknown sizes, and the result shapes for them."""
    unknown = (max(size, 0) for size in itertools.count(first, step))
    shapes = [[next(unknown) if n is None else n for n in one.shape.as_list()] for one in inputs]
    specs = [tf.TensorSpec(shape, one.dtype) for shape, one in zip(shapes, inputs, strict=True)]
    results: _Shapes = []
    for said in shape_function(specs):
        if said is None or not said.shape.is_fully_defined():
            raise ValueError("a shape is not known")
        results.append(said.shape.as_list())
    return shapes, results


# Maps a spec to the highest derivative asked for, and to whether its own calls are recorded.
Asked = Callable[[Any], tuple[int, bool]]


def record_of(spec: Any, asked: Asked) -> tokens.Record:
    """Return the record by which another process rebuilds a spec, or raise an UnwritableError."""
    orders, recorded = asked(spec)
    known: tokens.Record | None = getattr(spec, "saved", None)
    if known is not None:
        return msgspec.structs.replace(
            known, orders=max(orders, known.orders), recorded=recorded or known.recorded
        )
    if isinstance(spec, GradientSpec | RecomputingSpec):
        return _of_gradient(spec, asked, recorded)
    if isinstance(spec, NumpySpec):
        return _of_call(spec)
    if isinstance(spec, EagerSpec):
        return msgspec.structs.replace(
            _of_call(spec),
            kind="eager",
            differentiable=spec.differentiable,
            orders=orders,
            recorded=recorded,
        )
    raise tokens.UnwritableError("it was called before hostcall was imported")


def asked_of(specs: list[Any]) -> Asked:
    """Return an `Asked` that tells which derivatives the gradients among a graph's specs need."""
    gradients = [spec for spec in specs if isinstance(spec, GradientSpec)]
    recorded = {spec.parent for spec in gradients}
    orders: dict[CallbackSpec, int] = {}
    for spec in gradients:
        orders[spec.root] = max(orders.get(spec.root, 0), spec.order)
    return lambda spec: (
        (orders.get(spec, 0), spec in recorded) if isinstance(spec, CallbackSpec) else (0, False)
    )


def asked_so_far(spec: Any) -> tuple[int, bool]:
    """Return the derivatives asked for in this process so far; later graphs may ask for more."""
    return getattr(spec, "orders_wanted", 0), getattr(spec, "gradient_wanted", False)


def _of_gradient(spec: Any, asked: Asked, recorded: bool) -> tokens.Record:
    if spec.levels:
        raise tokens.UnwritableError("it is a gradient for a whole batch, as of a jacobian")
    return tokens.Record(
        id=spec.title,
        kind="gradient" if isinstance(spec, GradientSpec) else "recomputed",
        inputs=spec.inputs.size,
        outputs=tokens.to_json(list(spec.static_specs)),
        of=record_of(spec.parent, asked),
        targets=spec.targets,
        sources=spec.sources,
        differentiable=True,
        recorded=recorded,
    )


def _of_call(spec: CallbackSpec) -> tokens.Record:
    inputs = spec.inputs
    return tokens.Record(
        id=spec.title,
        kind="numpy",
        function=_function(spec),
        inputs=tokens.to_json(inputs.structure) if inputs.nested else inputs.size,
        outputs=tokens.to_json(spec.outputs.structure),
        at=_short(source_location.split_description(spec.description)[3]),
        declared=_declared(spec),
        callback=spec.outputs.strict,
        copies=spec.user.owns_arguments,
        route=spec.route,  # type: ignore[arg-type] # checked when it was asked for
        static=[tokens.to_json(one) for one in spec.static_specs],
        plain=[tokens.to_json(one) for one in spec.plain_specs],
        consumers=[tokens.write_shape(shape) for shape in spec.consumer_shapes],
        counts=list(spec.element_counts),
        reasons=list(spec.shape_reasons),
        levels=list(spec.levels),
    )


def _function(spec: CallbackSpec) -> tokens.FunctionRecord:
    function, keywords, fixed = callback.parts(spec.function)
    name = spec.user.given_name or declarations.name_of(function)
    place = qualified_name(function)
    if place is not None and (isinstance(function, type) or not tokens.is_importable(place)):
        place = None
    pickled, native = None, record_of_native(spec)
    if name is None and place is None:
        if native is not None:
            name = name_of(native)
        elif pickled_functions.pickles_functions.get():
            pickled = _pickled(spec, function, bool(keywords or fixed))
        else:
            raise tokens.UnwritableError(reason(function))
    written = {key: callback.literal(value) for key, value in fixed.items()}
    if wrong := [key for key, text in written.items() if text is None]:
        raise tokens.UnwritableError(
            f"{wrong[0]}={fixed[wrong[0]]!r}, which it is passed, cannot be written"
        )
    texts = {key: str(text) for key, text in written.items()}
    code = None if native is None else tokens.encode_native(native)
    return tokens.FunctionRecord(place, name, pickled, list(keywords), texts, code)


def _pickled(spec: CallbackSpec, function: Any, by_keyword: bool) -> tokens.Pickled:
    result = spec.options.result
    shape_function = result if is_shape_function(result) else None
    if by_keyword:  # the user's own shape function: loading binds the keywords again
        shape_function = callback.parts(shape_function)[0]
    _, name, defined_at, _ = source_location.split_description(spec.description)
    title = f"{name} ({_short(defined_at)})" if defined_at else name
    return pickled_functions.pickled(function, shape_function, title)


def _declared(spec: CallbackSpec) -> tokens.Declared:
    options = spec.options
    result, dtypes = options.result, spec.outputs.dtypes
    is_function = is_shape_function(result)
    written: Any = None
    if isinstance(result, str):
        written = result
    elif result is not None and not is_function:
        with contextlib.suppress(ValueError):  # it contradicts `Tout`; its calls raise that error
            written = [tokens.to_json(one) for one in flatten_result(result, dtypes)]
    said: dict[str, Any] = {name: getattr(options, name) for name in tokens.OPTIONS}
    if said["timeout"] is not None:
        said["timeout"] = float(said["timeout"])  # the user may pass any numeric type
    return tokens.Declared(written, is_function, **said)


def _short(place: str) -> str:
    """Return `file:line` without the directories, which differ between machines."""
    return place.rpartition("/")[2]

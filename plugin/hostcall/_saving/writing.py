"""The naming of script ops in graphs that are traced or saved.

Another process of the job may run a traced function, on a worker or in a tf.data service, and any
process may load a saved graph. So script ops get tokens by which any process finds the functions.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._functions import source_location
from hostcall._saving import decoding, encoding, pickled_functions, tokens
from hostcall._saving.tokens import SavedFunctionError
from hostcall._tf import (
    attributes,
    function_defs,
    op_kinds,
    protos,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.types import Graph, MetaGraphDef
from hostcall_runtime import _locks

_lock = _locks.new_lock()


def name_traced_functions(graph: Graph) -> None:
    """Give script ops of a function's graph tokens by which any process finds their functions.

    An op whose function has no name keeps its token: it runs in this process.
    """
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
    written = _token_of(token_registry.find_present(token))
    if written is not None and written != token:
        protos.set_attr(op, "token", s=written.encode())


def _token_of(spec: Any) -> str | None:
    if spec is None:
        return None
    try:
        with pickled_functions.save_options(pickle=False):  # other processes lack this one's files
            token = tokens.encode(encoding.record_of(spec, encoding.asked_so_far))
    except encoding.UnnamedError:
        return None
    token_registry.register_token(token, spec)
    return token


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
    """Give the script ops of a MetaGraphDef tokens by which any process finds their functions.

    Ops whose functions have no name keep their tokens, and a warning lists the functions. Pickles
    go into the SavedModel's directory, which is None for a graph that goes elsewhere. It is a
    ValueError that a function cannot be pickled, or that the graph holds a StableHLO program which
    calls Python: the program's numbers mean other functions in another process.
    """
    # A server without hostcall's pass would compile replaced nodes beside their replacements.
    function_defs.drop_replaced(meta_graph.graph_def.library)
    nodes = list(script_op_graphs.nodes_of(meta_graph.graph_def))
    _refuse_modules(nodes)
    unnamed = _name(nodes, directory)
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
    asked = encoding.asked_of(list(entries.values()))
    unnamed: list[_Unnamed] = []
    unpicklable: dict[tuple[str, str], None] = {}
    written: dict[str, str] = {}
    for token, entry in entries.items():
        try:
            written[token] = _qualified(token, entry, asked, directory)
        except encoding.UnnamedError as error:
            unnamed.append((token, entry, str(error)))
        except pickled_functions.UnpicklableError as error:
            unpicklable[_described(token, entry), str(error)] = None
    if unpicklable:
        raise ValueError(_UNPICKLABLE.format(listed=_indented(unpicklable)))
    for node in nodes:
        token = lookup.token_of(node)
        if token in written:  # other tokens may not be valid text
            node.attr["token"].s = written[token].encode()
    return unnamed


def _qualified(token: str, entry: Any, asked: encoding.Asked, directory: str | None) -> str:
    if entry is None:
        if not token_registry.is_qualified(token):
            raise encoding.UnnamedError("it does not exist any more, here either")
        return _qualified_before(token, directory)
    record = encoding.record_of(entry, asked).with_leave("")
    _carry(record, directory)
    written = tokens.encode(record)
    decoding.keep(written, entry)
    return written


def _qualified_before(token: str, directory: str | None) -> str:
    """Return the token for an op of a loaded graph whose function has not been called yet."""
    try:
        record = tokens.decode(token).with_leave("")
    except SavedFunctionError:
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
        raise encoding.UnnamedError("only a SavedModel can carry its pickle")
    if not pickled_functions.write(pickled.sha256, directory):
        raise encoding.UnnamedError("its pickle is not here: only a SavedModel carries it")


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
    names = {_name_of(description): None for description in unnamed}
    lines = "\n".join(
        f'    hostcall.register({name}, "mymodel::{name}")      # here\n'
        f'    hostcall.provide("mymodel::{name}", {name})       # there'
        for name in names
    )
    text = _UNNAMED.format(what=what, listed=listed, lines=lines) + more
    warnings.warn(text, UserWarning, stacklevel=3)


def _indented(problems: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"  - {which}:\n" + textwrap.indent(why, "      ") for which, why in problems)


def _name_of(description: str) -> str:
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

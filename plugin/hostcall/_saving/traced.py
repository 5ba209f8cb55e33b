"""What is done to the graph of a function when it is made: its script ops get qualified tokens.

The function may run in another process of the job: on a worker, or in a service of tf.data.
"""

from __future__ import annotations

from typing import Any

from hostcall._saving import options, recording, tokens
from hostcall._tf import protos, script_op_graphs, token_registry
from hostcall._tf.types import Graph
from hostcall_runtime import _locks

_lock = _locks.new_lock()


def name_functions(graph: Graph) -> None:
    """Gives the script ops of a function's graph tokens by which any process finds what they call.

    Those of functions without a name stay what they are: they run in this process.
    """
    for op in script_op_graphs.script_ops_of(graph):
        _name(op)


def name_new_functions(graph: Graph) -> None:
    """The same of a session's graph, whose ops cannot be changed any more when they have run."""
    with _lock:  # whoever comes second may send the ops as soon as this has returned
        for op in script_op_graphs.new_script_ops_of(graph):
            _name(op)


def _name(op: Any) -> None:
    token = op.get_attr("token").decode(errors="replace")
    if token_registry.is_qualified(token) and not token_registry.is_own(token):
        return  # of a graph that was loaded
    written = _token_of(token_registry.find_present(token))
    if written is not None and written != token:
        protos.set_attr(op, "token", s=written.encode())


def _token_of(spec: Any) -> str | None:
    if spec is None:
        return None
    try:
        with options.save_options(pickle=False):  # other processes have no files of ours
            token = tokens.encode(recording.record_of(spec, recording.asked_so_far))
    except recording.UnnamedError:
        return None
    token_registry.register_token(token, spec)
    return token

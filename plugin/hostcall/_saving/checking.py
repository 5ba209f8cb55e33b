"""What is said when a SavedModel is loaded: which of its Python functions cannot be called."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from hostcall._callbacks import lookup
from hostcall._saving import functions, tokens
from hostcall._saving.errors import SavedFunctionError
from hostcall._saving.functions import Problem
from hostcall._tf import op_kinds, script_op_graphs, token_registry

_WARNING = """\
hostcall: {path} calls Python functions that cannot be called here, as yet:

{listed}

The rest of it works. Before these are called, if you trust the file:

{lines}"""

_UNNAMED = Problem("the file has no name for it", "# save the model again, with hostcall imported")
_DAMAGED = "# save the model again"


def check(model: Any, path: str) -> None:
    """Warns of the functions of a SavedModel that cannot be called here, in one warning.

    It is no error: variables, other signatures and parts of the model may be all that is wanted,
    and a function can still be allowed or provided before its first call, which is an error then.
    Nothing is imported.

    Args:
      model: the message.
      path: of the directory that it was read from.
    """
    problems: dict[str, Problem] = {}
    for token in _tokens(model):
        label, problem = _problem_of(token)
        if problem is not None:
            problems.setdefault(label, problem)
    if not problems:
        return
    listed = "\n".join(f"  - {label}: {problem.reason}" for label, problem in problems.items())
    lines = "\n".join({f"    {problem.line}": None for problem in problems.values()})
    warnings.warn(_WARNING.format(path=path, listed=listed, lines=lines), UserWarning, stacklevel=2)


def _tokens(model: Any) -> Iterator[str]:
    """The tokens of the script ops in a SavedModel, each once."""
    nodes = (
        node for graph in model.meta_graphs for node in script_op_graphs.nodes_of(graph.graph_def)
    )
    yield from dict.fromkeys(lookup.token_of(n) for n in nodes if n.op in op_kinds.SCRIPT_OPS)


def _problem_of(token: str) -> tuple[str, Problem | None]:
    """What messages call a function, and what is wrong with it."""
    if token_registry.find_present(token) is not None:
        return token, None
    if not token_registry.is_qualified(token):
        return token, _UNNAMED
    try:
        record = tokens.decode(token)
    except SavedFunctionError as error:
        return f"{token[:40]}...", Problem(str(error), _DAMAGED)
    function = record.users
    at = f", called at {record.place_of_call}" if record.place_of_call else ""
    return f"{function.label}{at}", functions.problem_of(function.place, function.name)

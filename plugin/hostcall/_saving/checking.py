"""What is said when a SavedModel is loaded: which of its Python functions cannot be called."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from hostcall._callbacks import lookup
from hostcall._saving import decoding, functions, options, pickled_functions, tokens
from hostcall._saving.tokens import Problem, SavedFunctionError
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
    Nothing is imported or unpickled.

    Args:
      model: the message. Where the user allows the model's pickles, its tokens are made to say so.
      path: of the directory that it was read from.

    Raises:
      SavedFunctionError: when the user allows pickles, and one is missing or was altered.
    """
    problems: dict[str, Problem] = {}
    for token, nodes in _nodes_by_token(model).items():
        checked = _checked(token, nodes, path)
        if checked.problem is not None:
            problems.setdefault(checked.label, checked.problem)
        if checked.token != token:
            for node in nodes:
                node.attr["token"].s = checked.token.encode()
    if not problems:
        return
    listed = "\n".join(f"  - {label}: {problem.reason}" for label, problem in problems.items())
    lines = "\n".join({f"    {problem.line}": None for problem in problems.values()})
    warnings.warn(_WARNING.format(path=path, listed=listed, lines=lines), UserWarning, stacklevel=2)


def _nodes_by_token(model: Any) -> dict[str, list[Any]]:
    """The script ops in a SavedModel, by their tokens."""
    found: dict[str, list[Any]] = {}
    for graph in model.meta_graphs:
        for node in script_op_graphs.nodes_of(graph.graph_def):
            if node.op in op_kinds.SCRIPT_OPS:
                found.setdefault(lookup.token_of(node), []).append(node)
    return found


@dataclasses.dataclass(frozen=True)
class _Checked:
    """What messages call a function, what is wrong with it, and its token in this process."""

    label: str
    problem: Problem | None
    token: str


def _checked(token: str, nodes: list[Any], path: str) -> _Checked:
    if token_registry.find_present(token) is not None:
        return _Checked(token, None, token)
    try:
        record = _read(token, nodes)
    except SavedFunctionError as error:
        return _Checked(_shown(token), Problem(str(error), _DAMAGED), token)
    if record is None:
        return _Checked(token, _UNNAMED, token)
    problem = None
    if (pickled := record.users.pickled) is not None:
        record, problem = _with_leave(record, pickled, path)
        token = tokens.encode(record)
    at = f", called at {record.place_of_call}" if record.place_of_call else ""
    problem = problem or functions.problem_of(record.users)
    return _Checked(f"{record.users.label}{at}", problem, token)


def judged(
    token: str, node: Any, directory: str | None
) -> tuple[str, tokens.Record | None, Problem | None]:
    """What a token in a file says, whatever the user allows now of pickles.

    Args:
      token: the token.
      node: the op.
      directory: of the SavedModel, where pickles lie; or None.

    Returns:
      What messages call the function, the record if there is one, and what keeps the function
      from being called, or None.
    """
    try:
        record = _read(token, [node])
    except SavedFunctionError as error:
        return _shown(token), None, Problem(str(error), _DAMAGED)
    if record is None:
        return token, None, _UNNAMED
    record, problem = record.with_leave(""), None
    if (pickled := record.users.pickled) is not None and directory is not None:
        problem = pickled_functions.read(pickled.sha256, directory)
    return record.users.label, record, problem or functions.problem_of(record.users)


def _read(token: str, nodes: list[Any]) -> tokens.Record | None:
    """The record in a token that ops have; None for a mere number.

    Raises:
      SavedFunctionError: when it makes no sense, or is not for these ops.
    """
    if not token_registry.is_qualified(token):
        return None
    record = tokens.decode(token)
    for node in nodes:
        decoding.check(record, node)
    return record


def _shown(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:40]}..."


def _with_leave(
    record: tokens.Record, pickled: tokens.Pickled, path: str
) -> tuple[tokens.Record, Problem | None]:
    """The record with leave to call its pickle where the user gives it; and what is wrong."""
    problem = pickled_functions.read(pickled.sha256, path)
    if not options.allows_pickles():
        return record.with_leave(""), problem
    if problem is not None:
        raise SavedFunctionError(
            f"hostcall: {path} cannot be loaded with allow_pickle=True. Of the Python function "
            f"{pickled.title}, {problem.reason}. Nothing was run."
        )
    return record.with_leave(pickled_functions.leave_for(pickled.sha256)), None

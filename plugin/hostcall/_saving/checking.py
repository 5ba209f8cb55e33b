"""The check of a SavedModel at load time: it lists the Python functions that cannot be called."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from hostcall._callbacks import lookup
from hostcall._saving import decoding, functions, pickled_functions, save_options, tokens
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
    """Warn of the functions of a SavedModel that cannot be called here, in one warning.

    This is no error: the user may want only variables, other signatures or parts of the model. A
    function can also be allowed or provided until its first call, which raises the error.
    Nothing is imported or unpickled.

    Args:
      model: the SavedModel message. If the user allows pickles, its tokens are changed to say so.
      path: the directory that the message was read from.

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
    """Return the script ops in a SavedModel, by their tokens."""
    found: dict[str, list[Any]] = {}
    for graph in model.meta_graphs:
        for node in script_op_graphs.nodes_of(graph.graph_def):
            if node.op in op_kinds.SCRIPT_OPS:
                found.setdefault(lookup.token_of(node), []).append(node)
    return found


@dataclasses.dataclass(frozen=True)
class _Checked:
    """A function's label for messages, the problem with it, and its token in this process."""

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
    """Judge a token in a file, regardless of whether the user allows pickles now.

    Args:
      token: the token.
      node: the script op with that token.
      directory: the SavedModel's directory, which holds the pickles; or None.

    Returns:
      The function's label for messages, the record or None, and the problem that prevents calls
      of the function or None.
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
    """Return the record in the token of some ops; None for a token that holds no record.

    Raises:
      SavedFunctionError: when the record is malformed, or does not fit these ops.
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
    """Return the record, with leave to call its pickle if the user gives it, and the problem."""
    problem = pickled_functions.read(pickled.sha256, path)
    if not save_options.allows_pickles():
        return record.with_leave(""), problem
    if problem is not None:
        raise SavedFunctionError(
            f"hostcall: {path} cannot be loaded with allow_pickle=True. Of the Python function "
            f"{pickled.title}, {problem.reason}. Nothing was run."
        )
    return record.with_leave(pickled_functions.leave_for(pickled.sha256)), None

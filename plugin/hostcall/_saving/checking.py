"""The check of a SavedModel at load time: it lists the Python functions that cannot be called."""

from __future__ import annotations

import warnings
from typing import Any

from hostcall._callbacks import lookup
from hostcall._saving import decoding, functions, pickled_functions, tokens
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
    Nothing is imported or unpickled. If the user allows pickles, the model's tokens are changed to
    say so, and it is a SavedFunctionError that one is missing or was altered.
    """
    problems: dict[str, Problem] = {}
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


def _nodes_by_token(model: Any) -> dict[str, list[Any]]:
    """Return the script ops in a SavedModel, by their tokens."""
    found: dict[str, list[Any]] = {}
    for graph in model.meta_graphs:
        for node in script_op_graphs.nodes_of(graph.graph_def):
            if node.op in op_kinds.SCRIPT_OPS:
                found.setdefault(lookup.token_of(node), []).append(node)
    return found


def _checked(token: str, nodes: list[Any], path: str) -> tuple[str, Problem | None, str]:
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
    token: str, node: Any, directory: str | None
) -> tuple[str, tokens.Record | None, Problem | None]:
    """Judge the token of a script op in a file, whether the user allows pickles now or not.

    Args:
      token: the token.
      node: the script op with that token.
      directory: the SavedModel's directory, which holds the pickles; or None.

    Returns:
      The function's label for messages, the record or None, and the problem that prevents calls
      of the function or None.
    """
    label, record, problem = _read(token, [node])
    if record is None:
        return label, None, problem
    record = record.with_leave("")
    if (pickled := record.users.pickled) is not None and directory is not None:
        problem = pickled_functions.read(pickled.sha256, directory)
    return label, record, problem or functions.problem_of(record.users)


def _read(token: str, nodes: list[Any]) -> tuple[str, tokens.Record | None, Problem | None]:
    """Return a function's label for messages, and the record in the token of some ops.

    Without a record, the problem says why: there is none, or it is malformed or of other ops.
    """
    if not token_registry.is_qualified(token):
        return token, None, _UNNAMED
    try:
        record = tokens.decode(token)
        for node in nodes:
            decoding.check(record, node)
    except SavedFunctionError as error:
        shown = token if len(token) <= 40 else f"{token[:40]}..."
        return shown, None, Problem(str(error), _DAMAGED)
    return record.users.label, record, None


def _with_leave(
    record: tokens.Record, pickled: tokens.Pickled, path: str
) -> tuple[tokens.Record, Problem | None]:
    """Return the record, with leave to call its pickle if the user gives it, and the problem."""
    problem = pickled_functions.read(pickled.sha256, path)
    if not pickled_functions.allows_pickles.get():
        return record.with_leave(""), problem
    if problem is not None:
        raise SavedFunctionError(
            f"hostcall: {path} cannot be loaded with allow_pickle=True. Of the Python function "
            f"{pickled.title}, {problem.reason}. Nothing was run."
        )
    return record.with_leave(pickled_functions.leave_for(pickled.sha256)), None

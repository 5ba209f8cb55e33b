"""What the commands of `hostcall_command` do; each returns the text to print."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from hostcall._cli import diagnosis, saved_models
from hostcall._explain import page
from hostcall._inspect import inspecting
from hostcall._serving import serving_library as _serving_library
from hostcall._serving import worker as serving_worker
from hostcall._serving.worker import Worker


def explain(saved_model: Path, signature: str | None, html: Path | None, as_json: bool) -> str:
    """Explains the functions of a SavedModel.

    Args:
      saved_model: its directory.
      signature: the one to explain; None for all.
      html: where to write a page; None for nowhere.
      as_json: whether to answer in JSON.

    Raises:
      OSError, ValueError, KeyError: when the model cannot be read, or the page written.
    """
    found = saved_models.explain(saved_model, signature)
    if html is not None:
        html.write_text(page.page(*found), encoding="utf-8")
    if as_json:
        return json.dumps([explanation.to_dict() for explanation in found], indent=2)
    return "\n\n".join(map(str, found))


def inspect(path: Path, as_json: bool) -> str:
    """Lists the Python functions that a file names.

    Args:
      path: as for `hostcall.inspect`.
      as_json: whether to answer in JSON.

    Raises:
      OSError, ValueError: when it cannot be read.
    """
    found = inspecting.inspect(path)
    return json.dumps(found.to_dict(), indent=2) if as_json else str(found)


def rewrite(saved_model: Path, out: Path, route: str, as_json: bool) -> str:
    """Writes a copy of a SavedModel with its compiled functions rewritten.

    Args:
      saved_model: its directory.
      out: that of the copy.
      route: as for `hostcall.rewrite`.
      as_json: whether to answer in JSON.

    Raises:
      OSError, ValueError, KeyError: when the model cannot be read or rewritten, or `out` exists.
    """
    changed = saved_models.rewrite(saved_model, out, route)
    if as_json:
        return json.dumps({"out": str(out), "route": route, "rewritten": changed}, indent=2)
    what = ", ".join(changed) or "nothing: no compiled function has to be partitioned"
    return f"Wrote {out}. Rewritten: {what}."


def doctor(names: bool, as_json: bool) -> str:
    """Versions, what hostcall was built against, and what is switched on.

    Args:
      names: whether to list each private name; in JSON they always are.
      as_json: whether to answer in JSON.
    """
    report = diagnosis.report()
    return json.dumps(report, indent=2) if as_json else diagnosis.text(report, names)


def serving_library() -> str:
    """The path of the library for servers without Python.

    Raises:
      FileNotFoundError: when it is not there.
    """
    return _serving_library.serving_library()


def worker(
    socket: str | None,
    control_fd: int | None,
    allow: Sequence[str],
    imports: Sequence[str],
    max_bytes: int,
    connections: int,
    say: Callable[[str], None],
) -> str:
    """Calls Python functions for other processes, until it is told to end.

    Args:
      socket: the path to listen at; or None.
      control_fd: where clients are handed over; or None.
      allow: the modules whose functions may be called.
      imports: the modules to import first.
      max_bytes: the most that the arguments, or the results, of a call may have.
      connections: the most clients at a time.
      say: what tells the user that it listens.

    Raises:
      ValueError: when it cannot begin.
    """
    serving_worker.run(socket, control_fd, allow, imports, Worker(max_bytes, connections), say)
    return ""

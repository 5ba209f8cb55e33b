"""The implementations of the commands of `hostcall_command`.

Each takes the options of the command, returns the text to print, and raises an OSError, ValueError
or KeyError that says what is wrong with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from hostcall import _versions
from hostcall._cli import diagnosis, saved_models
from hostcall._explain import page
from hostcall._inspect import inspecting
from hostcall._serving import worker as serving_worker
from hostcall._serving.worker import Worker


def explain(saved_model: Path, signature: str | None, html: Path | None, as_json: bool) -> str:
    """Explain one signature of a SavedModel, or all, and write them on a page if one is wanted."""
    found = saved_models.explain(saved_model, signature)
    if html is not None:
        html.write_text(page.page(*found), encoding="utf-8")
    if as_json:
        return json.dumps([explanation.to_dict() for explanation in found], indent=2)
    return "\n\n".join(map(str, found))


def inspect(path: Path, as_json: bool) -> str:
    """List the Python functions that a file names."""
    found = inspecting.inspect(path)
    return json.dumps(found.to_dict(), indent=2) if as_json else str(found)


def rewrite(saved_model: Path, out: Path, route: str, as_json: bool) -> str:
    """Write a copy of a SavedModel with its compiled functions rewritten."""
    changed = saved_models.rewrite(saved_model, out, route)
    if as_json:
        return json.dumps({"out": str(out), "route": route, "rewritten": changed}, indent=2)
    what = ", ".join(changed) or "nothing: no compiled function has to be partitioned"
    return f"Wrote {out}. Rewritten: {what}."


def doctor(names: bool, as_json: bool) -> str:
    """Report versions, the build of hostcall, and the features that are switched on."""
    report = diagnosis.report()
    return json.dumps(report, indent=2) if as_json else diagnosis.text(report, names)


def serving_library() -> str:
    """Return the path of the library for servers without Python."""
    return _versions.serving_library()


def worker(
    socket: str | None,
    control_fd: int | None,
    allow: Sequence[str],
    imports: Sequence[str],
    max_bytes: int,
    connections: int,
    say: Callable[[str], None],
) -> str:
    """Call Python functions for other processes, until it is told to end; see `worker.run`."""
    serving_worker.run(socket, control_fd, allow, imports, Worker(max_bytes, connections), say)
    return ""

"""The command `hostcall`: `explain`, `inspect`, `rewrite`, `doctor`, `worker` and more.

It imports only the modules that click needs, so that help is shown at once, and also where hostcall
cannot be imported. A command imports its implementation, and TensorFlow with it, when it runs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import click

ROUTES = ("auto", "custom_call", "partition")  # the routes of hostcall._functions.options


class _Command(click.Command):
    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first sentence, which click would cut off."""
        return " ".join(inspect.cleandoc(self.help or "").partition("\n\n")[0].split())


class _Group(click.Group):
    command_class = _Command


_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="hostcall")
def commands() -> None:
    """Run Python functions inside compiled TensorFlow programs."""


@commands.command()
@click.argument("saved_model", type=click.Path(path_type=Path))
@click.option("--signature", help="The signature to explain; all of them if it is left out.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with pictures."
)
@_JSON
def explain(saved_model: Path, signature: str | None, html: Path | None, as_json: bool) -> None:
    """Show what becomes of the functions of SAVED_MODEL: what is compiled, and what is not."""
    _run("explain", saved_model, signature, html, as_json)


@commands.command(name="inspect")
@click.argument("path", type=click.Path(path_type=Path))
@_JSON
def inspect_file(path: Path, as_json: bool) -> None:
    """List the Python functions that PATH, such as a SavedModel, names, without importing any."""
    _run("inspect", path, as_json)


@commands.command()
@click.argument("saved_model", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--route",
    type=click.Choice(ROUTES),
    default=ROUTES[0],
    show_default=True,
    help="As for hostcall.rewrite.",
)
@_JSON
def rewrite(saved_model: Path, out: Path, route: str, as_json: bool) -> None:
    """Write a copy of SAVED_MODEL to OUT, with its compiled functions partitioned where needed."""
    _run("rewrite", saved_model, out, route, as_json)


@commands.command()
@click.option("--names", is_flag=True, help="List each private name, with its state.")
@_JSON
def doctor(names: bool, as_json: bool) -> None:
    """Show versions, what hostcall was built against, and what is switched on, and try a call."""
    _run("doctor", names, as_json, of="hostcall._tools.doctor")


@commands.command("serving-library")
def serving_library() -> None:
    """Print the path of the library for servers without Python."""
    _run("serving_library")


@commands.command()
@click.option("--socket", "path", type=click.Path(), help="The path to listen at, or to --check.")
@click.option("--control-fd", "control", type=click.IntRange(min=0), hidden=True)
@click.option("--allow", multiple=True, help="What to allow, beside HOSTCALL_ALLOW.")
@click.option(
    "--import", "imports", multiple=True, envvar="HOSTCALL_WORKER_IMPORT", help="Import it first."
)
@click.option(
    "--bytes",
    "max_bytes",
    type=click.IntRange(min=4096),
    default=1 << 32,
    show_default=True,
    help="The most that the arguments, or the results, of one call may have.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="The most clients at a time.",
)
@click.option(
    "--metrics",
    "metrics_address",
    metavar="[HOST:]PORT",
    help="Serve metrics to Prometheus there; the host is 127.0.0.1.",
)
@click.option("--check", is_flag=True, help="Say whether a worker listens there, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --check: print JSON.")
def worker(
    allow: tuple[str, ...], imports: tuple[str, ...], check: bool, as_json: bool, **options: Any
) -> None:
    """Call Python functions of allowed modules for processes without Python, such as servers."""
    if (options["path"] is None) == (options["control"] is None):
        raise click.UsageError("Say --socket PATH.")
    if as_json and not check:
        raise click.UsageError("--json goes with --check: say both, or neither.")
    if check:
        _check_worker(str(options["path"]), as_json)
    else:
        _run("worker", allowed=_names(allow), imported=_names(imports), say=click.echo, **options)


def _names(given: tuple[str, ...]) -> list[str]:
    return [name for names in given for name in names.split(",") if name]


def _check_worker(path: str, as_json: bool) -> None:
    channel = importlib.import_module("hostcall_runtime._serving_wire")
    try:
        health = channel.health_of(path)
    except (OSError, channel.ProtocolError, channel.ClosedError) as error:
        reason = str(error) or "it has closed the connection"
        raise click.ClickException(f"no worker answers at {path}: {reason}") from error
    if as_json:
        click.echo(json.dumps(health._asdict()))
        return
    counted = importlib.import_module("hostcall_runtime._errors").counted
    mean = health.seconds / max(health.calls, 1)
    click.echo(
        f"process {health.pid} listens at {path}: "
        f"{counted(health.connections, 'connection')}, {counted(health.calls, 'call')}, "
        f"{counted(health.errors, 'error')}; a call takes {mean * 1e3:.3g} ms on "
        f"average, {health.slowest * 1e3:.3g} ms at most"
    )


def _run(command: str, *arguments: Any, of: str = "hostcall._tools.cli", **options: Any) -> None:
    """Print the text of a command; report an error of the user's in one line, with status 1."""
    implementation = getattr(_imported(of), command)
    try:
        text = implementation(*arguments, **options)
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(_text(error)) from error
    click.echo(text)


# What TensorFlow prints about the machine when it is imported, whatever the level of its log.
_NOTES = re.compile(rb"WARNING: All log messages before absl::|I\d{4} .*oneDNN custom operations")


def _imported(module: str) -> ModuleType:
    """Import a module, and TensorFlow with it, without TensorFlow's notes about the machine."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            return importlib.import_module(module)
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            printed.seek(0)
            kept = [line for line in printed if not _NOTES.match(line)]
            sys.stderr.write(b"".join(kept).decode(errors="replace"))


def _text(error: Exception) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split())


def main() -> None:
    """Run the command line; exit with status 1 and the reason if hostcall cannot be imported."""
    try:
        commands(prog_name="hostcall")
    except ImportError as error:
        if "--json" in sys.argv:
            print(json.dumps({"importable": False, "error": str(error)}, indent=2))  # noqa: T201
        else:
            print(error, file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from error

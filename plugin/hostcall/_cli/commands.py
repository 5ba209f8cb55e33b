"""The command line: `hostcall explain`, `hostcall rewrite` and `hostcall doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hostcall._callbacks import requested_routes
from hostcall._cli import diagnosis, diagnosis_text, saved_models
from hostcall._explain import page

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hostcall")
def main() -> None:
    """Python functions inside compiled TensorFlow programs."""


@main.command()
@click.argument("saved_model", type=click.Path(path_type=Path))
@click.option("--signature", help="The signature to explain; all of them if it is left out.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with pictures."
)
@_JSON
def explain(saved_model: Path, signature: str | None, html: Path | None, as_json: bool) -> None:
    """Show what becomes of the functions of SAVED_MODEL: what is compiled, and what is not."""
    found = _in_one_line(saved_models.explain, saved_model, signature)
    if html is not None:
        _in_one_line(html.write_text, page.page(*found), encoding="utf-8")
    if as_json:
        click.echo(json.dumps([explanation.to_dict() for explanation in found], indent=2))
    else:
        click.echo("\n\n".join(map(str, found)))


@main.command()
@click.argument("saved_model", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--route",
    type=click.Choice(requested_routes.ROUTES),
    default=requested_routes.AUTO,
    show_default=True,
    help="As for hostcall.rewrite.",
)
@_JSON
def rewrite(saved_model: Path, out: Path, route: str, as_json: bool) -> None:
    """Write a copy of SAVED_MODEL to OUT, with its compiled functions partitioned where needed."""
    changed = _in_one_line(saved_models.rewrite, saved_model, out, route)
    if as_json:
        click.echo(json.dumps({"out": str(out), "route": route, "rewritten": changed}, indent=2))
    else:
        what = ", ".join(changed) or "nothing: no compiled function has to be partitioned"
        click.echo(f"Wrote {out}. Rewritten: {what}.")


@main.command()
@_JSON
def doctor(as_json: bool) -> None:
    """Show versions, what hostcall was built against, and what is switched on."""
    report = diagnosis.report()
    click.echo(json.dumps(report, indent=2) if as_json else diagnosis_text.text(report))


def _in_one_line(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a function; what is wrong with the user's input comes out as one line and status 1."""
    try:
        return function(*args, **kwargs)
    except (saved_models.SavedModelError, OSError, ValueError, KeyError) as error:
        raise click.ClickException(_text(error)) from error


def _text(error: Exception) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split())

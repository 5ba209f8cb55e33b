"""The command `hostcall-opt`, which runs passes over a file of MLIR like `mlir-opt`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, TextIO

import click
from jaxlib.mlir import ir

from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Failure, PassError
from hostcall_mlir.passes import check, pipeline
from hostcall_mlir.passes.pipeline import PASSES

_SEPARATOR = "// -----"

_Flags = Mapping[str, Any]  # by click's names of the options


def _epilog() -> str:
    # "\b" keeps click from wrapping the paragraph.
    lines = ["\b", "Passes:"]
    for entry in PASSES.values():
        lines.append(f"  {entry.name:22}{entry.summary}")
        lines += (f"    {name:20}{text}" for name, text in entry.options.items())
    return "\n".join(lines) + (
        "\n\nand those of MLIR and StableHLO that jaxlib has, such as canonicalize, cse, inline "
        "and symbol-dce."
    )


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_epilog(),
)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-o", "output", type=click.File("w", lazy=True), default="-", help="Where to write.")
@click.option(
    "--pass-pipeline",
    default="",
    metavar="PASSES",
    help="Such as 'builtin.module(hostcall-name{names=3=pkg.mod:fn},hostcall-partition)'.",
)
@click.option(
    "--split-input-file",
    is_flag=True,
    help=f"Take the pieces between lines '{_SEPARATOR}' for modules of their own.",
)
@click.option(
    "--verify-diagnostics",
    is_flag=True,
    help="Compare the diagnostics with '// expected-error {{text}}', and print no module.",
)
@click.option("--mlir-print-debuginfo", is_flag=True, help="Print locations.")
@click.option("--mlir-print-op-generic", is_flag=True, help="Print ops in the generic form.")
@click.version_option(package_name="hostcall")
def main(file: BinaryIO, output: TextIO, **flags: str | bool) -> None:
    """Run passes over StableHLO programs that call Python functions of the host.

    FILE is MLIR as text or bytecode; if it is absent or '-', the command reads standard input. The
    exit status is 1 if a module cannot be parsed, a pass fails or, with --verify-diagnostics, the
    diagnostics differ from the expected ones.
    """
    try:
        ok = _run(file, output, flags)
    except (OSError, PassError) as error:
        click.echo(f"hostcall-opt: error: {error}", err=True)
        ok = False
    sys.exit(0 if ok else 1)


def _run(file: BinaryIO, output: TextIO, flags: _Flags) -> bool:
    """Run the command, and return whether all pieces succeeded."""
    # An invalid pipeline is one error, not one for each piece.
    pipeline.parse(flags["pass_pipeline"], private.new_context())
    data = file.read()
    pieces = _pieces(data) if flags["split_input_file"] else [data]
    if flags["verify_diagnostics"]:
        failed = [piece for piece in pieces if not _verify(piece, file.name, flags)]
        return not failed
    outputs = [_transform(piece, file.name, flags) for piece in pieces]
    output.write(f"{_SEPARATOR}\n".join(text or "" for text in outputs))
    return None not in outputs


def _transform(piece: bytes, source: str, flags: _Flags) -> str | None:
    """Return the transformed piece as text, None if it failed; print its diagnostics."""
    text, collector = _run_piece(piece, flags)
    if collector.diagnostics:
        click.echo(collector.show(source), err=True)
    return text


def _verify(piece: bytes, source: str, flags: _Flags) -> bool:
    """Return whether a piece has the diagnostics that it expects; print the differences."""
    _, collector = _run_piece(piece, flags)
    problems = check.compare(piece.decode(errors="replace"), collector.diagnostics, source)
    for problem in problems:
        click.echo(problem, err=True)
    return not problems


def _run_piece(piece: bytes, flags: _Flags) -> tuple[str | None, Collector]:
    """Return the transformed piece as text, None if it failed, and its diagnostics."""
    context = private.new_context()
    with Collector(context) as collector:
        try:
            module = pipeline.read(piece, context, collector)
            pipeline.run(module, flags["pass_pipeline"])
        except (Failure, ir.MLIRError):
            return None, collector
    asm = module.operation.get_asm(
        enable_debug_info=flags["mlir_print_debuginfo"],
        print_generic_op_form=flags["mlir_print_op_generic"],
    )
    return f"{asm.rstrip()}\n", collector


def _pieces(data: bytes) -> list[bytes]:
    """Split a file at its separators; empty lines in front keep the line numbers of each piece."""
    pieces: list[list[bytes]] = [[]]
    for number, line in enumerate(data.split(b"\n")):
        if line.rstrip() == _SEPARATOR.encode():
            pieces.append([b""] * (number + 1))
        else:
            pieces[-1].append(line)
    return [b"\n".join(lines) for lines in pieces]


if __name__ == "__main__":
    main(prog_name="hostcall-opt")

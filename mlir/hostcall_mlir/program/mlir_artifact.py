"""Reading a program's artifact, first in a process that nobody minds if it does not survive.

MLIR's reader ends the process over some bytes that are no artifact, where it should say so. A
damaged file is found by its SHA-256; this is for one that was made up.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import jaxlib.version
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, nesting, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector
from hostcall_mlir.passes import pipeline
from hostcall_mlir.program.errors import ProgramError

_SCRIPT = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from hostcall_mlir.program import mlir_artifact
sys.exit(mlir_artifact.try_standard_input())
"""
_FAILED = 3
# An artifact for which the reader takes more memory or time is a mistake.
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 64
_SECONDS, _BYTES_PER_SECOND = 20, 1 << 20

# The digests of those that have been tried in this process's time.
_readable: set[bytes] = set()


def read(artifact: bytes) -> ir.Module:
    """The module of an artifact, verified, in a context of its own.

    Raises:
      ProgramError: when the bytes are none, or the module is not as it should be.
    """
    if hashlib.sha256(artifact).digest() not in _readable:
        _try_elsewhere(artifact)
        trust(artifact)
    try:
        return _parse(artifact)
    except ValueError as error:
        raise _unreadable(str(error)) from error


def trust(artifact: bytes) -> None:
    """Says that an artifact can be read, because it was made in this process, say."""
    _readable.add(hashlib.sha256(artifact).digest())


def try_standard_input() -> int:
    """Reads an artifact from the standard input, and returns the status to exit with."""
    artifact = sys.stdin.buffer.read()
    _limit(len(artifact))
    try:
        _parse(artifact)
    except (ValueError, MemoryError) as error:
        sys.stderr.write(str(error) or "it takes too much memory")
        return _FAILED
    return 0


def _limit(size: int) -> None:
    """Lets this process take no more time and memory than an artifact of a size can need."""
    import resource

    memory = _MEMORY + _MEMORY_PER_BYTE * size
    with open("/proc/self/statm") as file:
        memory += int(file.read().split()[0]) * resource.getpagesize()  # what it has already
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.RLIM_INFINITY))
    seconds = _SECONDS + size // _BYTES_PER_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _parse(artifact: bytes) -> ir.Module:
    """The module of an artifact; raises ValueErrors, or ends the process."""
    context = private.new_context()
    with Collector(context) as collector:
        try:
            module = private.deserialize_artifact(context, artifact)
            nesting.check_ops(module)
            _drop_notes(module)
            for call in custom_calls.host_calls(module):
                custom_calls.restore_arrays(call)
            pipeline.run(module, "hostcall-check")
            module.operation.get_asm(large_elements_limit=16)  # which fails where a string is none
        except Exception as error:  # of many kinds, where somebody has made the bytes up
            raise ValueError(collector.show("the program") or str(error)) from error
    return module


def _drop_notes(module: ir.Module) -> None:
    """Drops what is no part of StableHLO's, and tells XLA to reuse the caller's memory, say."""
    operations = [module.operation, *side_effects.functions(module).values()]
    for operation in operations:
        for name in private.names_of_attributes(operation):
            if "." in name or name in ("arg_attrs", "res_attrs"):
                del operation.attributes[name]


def _try_elsewhere(artifact: bytes) -> None:
    """Raises a ProgramError when the bytes cannot be read.

    Where no process can be started nothing is found out.
    """
    command = [sys.executable, "-c", _SCRIPT, json.dumps([*map(str, sys.path)])]
    try:
        done = subprocess.run(command, input=artifact, capture_output=True, check=False)
    except (OSError, ValueError):
        return
    if done.returncode == _FAILED:
        raise _unreadable(done.stderr.decode(errors="replace").strip())
    if done.returncode < 0:
        raise _unreadable("its bytes are damaged, or made up: reading them ends the process")


def _unreadable(reason: str) -> ProgramError:
    return ProgramError(
        f"the program cannot be read. Most likely it was changed after it was exported, or is for "
        f"a newer jaxlib than the one that is installed, {jaxlib.version.__version__}:\n{reason}"
    )

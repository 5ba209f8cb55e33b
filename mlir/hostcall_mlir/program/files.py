"""Exported programs: their files, and the checks before anything runs.

MLIR's reader ends the process on some bytes that are not an artifact; it raises no error. A
SHA-256 finds damaged files, but not forged ones, so a child process reads each artifact first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import jaxlib.version
import msgspec
import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector
from hostcall_mlir.passes import pipeline
from hostcall_mlir.program import manifests
from hostcall_mlir.program.manifests import File, Manifest, ProgramError, dtype_of, listed

_SCRIPT = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from hostcall_mlir.program import files
sys.exit(files.try_standard_input())
"""
_FAILED = 3
# An artifact for which the reader needs more memory or time is an error.
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 64
_SECONDS, _BYTES_PER_SECOND = 20, 1 << 20

# The digests of artifacts that a child process has read, or that `trust` was called for.
_readable: set[bytes] = set()


def read_artifact(artifact: bytes) -> ir.Module:
    """Return the verified module of an artifact, in a context of its own."""
    if hashlib.sha256(artifact).digest() not in _readable:
        _try_elsewhere(artifact)
        trust(artifact)
    try:
        return _parse(artifact)
    except ValueError as error:
        raise _unreadable(str(error)) from error


def trust(artifact: bytes) -> None:
    """Mark an artifact as readable, for example because this process has made it."""
    _readable.add(hashlib.sha256(artifact).digest())


def try_standard_input() -> int:
    """Read an artifact from the standard input, and return the exit status."""
    artifact = sys.stdin.buffer.read()
    _limit(len(artifact))
    try:
        _parse(artifact)
    except (ValueError, MemoryError) as error:
        sys.stderr.write(str(error) or "it takes too much memory")
        return _FAILED
    return 0


def _limit(size: int) -> None:
    """Limit this process to the time and memory that an artifact of a size can need."""
    import resource

    memory = _MEMORY + _MEMORY_PER_BYTE * size
    with open("/proc/self/statm") as file:
        memory += int(file.read().split()[0]) * resource.getpagesize()  # in use already
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.RLIM_INFINITY))
    seconds = _SECONDS + size // _BYTES_PER_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _parse(artifact: bytes) -> ir.Module:
    """Parse an artifact; an invalid one raises a ValueError, or ends the process."""
    context = private.new_context()
    with Collector(context) as collector:
        try:
            module = private.deserialize_artifact(context, artifact)
            traversal.check_ops(module)
            _drop_notes(module)
            for call in custom_calls.host_calls(module):
                custom_calls.restore_arrays(call)
            pipeline.run(module, "hostcall-check")
            module.operation.get_asm(large_elements_limit=16)  # fails for an invalid string
        except Exception as error:  # forged bytes raise errors of many kinds
            raise ValueError(collector.show("the program") or str(error)) from error
    return module


def _drop_notes(module: ir.Module) -> None:
    """Drop attributes outside of StableHLO, some of which let XLA reuse the caller's memory."""
    operations = [module.operation, *traversal.functions(module).values()]
    for operation in operations:
        for name in private.names_of_attributes(operation):
            if "." in name or name in ("arg_attrs", "res_attrs"):
                del operation.attributes[name]


def _try_elsewhere(artifact: bytes) -> None:
    """Raise a ProgramError if a child process, where one can be started, cannot read the bytes."""
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


_TEXT = "program.mlir"
_VARIABLES = "variables.npz"


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled function that calls Python, in a form for other processes.

    Attributes:
      artifact: the program, a portable StableHLO artifact.
      text: the same for people to read.
      manifest: the other facts about the program.
      variables: the values of the variables that it takes, by name.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def sort(x):
      ...     return tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> program = hostcall.export(sort, tf.TensorSpec([3], tf.float32))
      >>> program.manifest.function, [entry.name for entry in program.manifest.callbacks]
      ('sort', ['numpy:sort'])
      >>> program.save(directory)  # which hostcall.load and hostcall_mlir.load read
    """

    artifact: bytes
    text: str
    manifest: Manifest
    variables: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Program {manifests.title_of(self.manifest)}>"

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the program into a directory, which is created if it does not exist.

        A program in the directory is replaced, once all files of this one have been written. Other
        files are left alone.

        Raises:
          ProgramError: if the manifest contradicts itself or the variables.
          FileExistsError: if files of these names exist that belong to no program.
          OSError: if a file cannot be written; the previous program is still there.
        """
        problems = [*manifests.problems_of(self.manifest, saved=False)]
        problems = problems or _problems_of_variables(self.variables, self.manifest)
        if problems:
            raise ProgramError(
                f"{self.manifest.function} cannot be saved, since its manifest or its variables "
                f"are wrong:\n{listed(problems)}"
            )
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        names = [self.manifest.program.path, _TEXT, _VARIABLES]
        _check_replaceable(folder, [manifests.FILE, *names])
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as new:
            self._write(Path(new))
            # Removed first and moved last, so a manifest is only beside complete files.
            for name in (manifests.FILE, *names):
                (folder / name).unlink(missing_ok=True)
            for name in (*names, manifests.FILE):
                if (Path(new) / name).exists():
                    os.replace(Path(new) / name, folder / name)

    def _write(self, folder: Path) -> None:
        """Write all files into an empty directory."""
        program = _write(folder, self.manifest.program.path, self.artifact)
        _write(folder, _TEXT, self.text.encode())
        variables = None
        if self.variables:
            variables = _write(folder, _VARIABLES, _to_npz(self.variables))
        manifest = msgspec.structs.replace(self.manifest, program=program, variables=variables)
        _write(folder, manifests.FILE, manifests.encode(manifest))

    def module(self) -> ir.Module:
        """Return the program's module, in a context of its own."""
        return read_artifact(self.artifact)


def read(directory: str | os.PathLike[str]) -> Program:
    """Read a program from its directory, without importing or running code of the user's."""
    folder = Path(directory)
    try:
        return _read(folder)
    except ProgramError as error:
        raise ProgramError(f"{folder}: {error}") from error.__cause__


def _read(folder: Path) -> Program:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ProgramError(
            f"the directory {what}. A program is a directory with a {manifests.FILE} in it, "
            "which hostcall.export writes."
        )
    reader = f"hostcall {importlib.metadata.version('hostcall')}"
    manifest = manifests.decode(_read_file(folder, manifests.FILE), reader)
    if problems := [*manifests.problems_of(manifest)]:
        raise ProgramError(f"{manifests.FILE} contradicts itself:\n{listed(problems)}")
    artifact = _read_checked(folder, manifest.program)
    variables = {}
    if manifest.variables is not None:
        variables = _read_arrays(_read_checked(folder, manifest.variables), manifest)
    if problems := _problems_of_variables(variables, manifest):
        raise ProgramError(f"the variables are not those of the program:\n{listed(problems)}")
    module = read_artifact(artifact)
    if problems := [*manifests.mismatches(module, manifest)]:
        raise ProgramError(
            f"the program in {manifest.program.path} and {manifests.FILE} do not belong "
            f"together, or hold what cannot be loaded:\n{listed(problems)}"
        )
    text: str = module.operation.get_asm(large_elements_limit=64)
    return Program(artifact, text, manifest, variables)


def _read_checked(folder: Path, file: File) -> bytes:
    data = _read_file(folder, file.path)
    if (found := _sha256(data)) != file.sha256:
        raise ProgramError(
            f"{file.path} is not the file that was exported: its SHA-256 is {found}, and "
            f"{manifests.FILE} has {file.sha256}. Copy the directory once more, or export "
            "the program again."
        )
    return data


def _read_file(folder: Path, name: str) -> bytes:
    path = folder / name
    try:
        # A link may lead to a file outside of the program.
        if path.resolve().parent != folder.resolve():
            raise ProgramError(f"{name} is a link that leads out of the directory")
        if path.exists() and not path.is_file():  # reading a pipe, for example, could block forever
            raise ProgramError(f"{name} is not a file")
        return path.read_bytes()
    except FileNotFoundError:
        raise ProgramError(
            f"there is no {name}. The directory is not one that hostcall.export has written, or "
            "it was copied in part."
        ) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links
        raise ProgramError(f"{name} cannot be read: {error}") from error


def _check_replaceable(folder: Path, names: Sequence[str]) -> None:
    """Raise a FileExistsError if files of these names exist that belong to no program."""
    manifest = folder / manifests.FILE
    if manifest.is_file() and manifests.is_manifest(manifest.read_bytes()):
        return
    found = [name for name in names if os.path.lexists(folder / name)]
    if found:
        raise FileExistsError(
            f"{folder}: {', '.join(found)} would be replaced, and belongs to no program of "
            "hostcall. Save into another directory, or remove it."
        )


def _write(folder: Path, name: str, data: bytes) -> File:
    (folder / name).write_bytes(data)
    return File(name, _sha256(data))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _to_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as the bytes of an .npz; equal arrays give equal bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, array in arrays.items():
            # An .npz names only NumPy's own dtypes; the manifest names the others.
            is_plain = manifests.is_of_numpy(array.dtype)
            plain = array if is_plain else array.view(f"u{array.dtype.itemsize}")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(plain), allow_pickle=False)
    return data.getvalue()


def _read_arrays(data: bytes, manifest: Manifest) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz; the manifest names the dtypes of ml_dtypes."""
    dtypes = {entry.name: dtype_of(entry.spec.dtype) for entry in manifest.inputs_of("variable")}
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy raise errors of their own
        raise ProgramError(
            f"the file of the variables is not an .npz of arrays: {error}"
        ) from error
    for name, array in arrays.items():
        dtype = dtypes.get(name, array.dtype)
        if not manifests.is_of_numpy(dtype) and array.dtype == f"u{dtype.itemsize}":
            arrays[name] = array.view(dtype)
    return arrays


def _problems_of_variables(variables: Mapping[str, np.ndarray], manifest: Manifest) -> list[str]:
    expected = {entry.name: entry.spec for entry in manifest.inputs_of("variable")}
    problems = [f"'{name}' has no value" for name in expected if name not in variables]
    for name, array in variables.items():
        spec = expected.get(name)
        if spec is None:
            problems.append(f"'{name}' is not a variable of the program")
        elif (array.dtype, array.shape) != (dtype_of(spec.dtype), spec.shape):
            found = f"{array.dtype.name}{[*array.shape]}"
            problems.append(f"'{name}' is {found}, and should be {manifests.show(spec)}")
    return problems

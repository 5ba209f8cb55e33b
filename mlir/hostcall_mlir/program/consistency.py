"""What has to be right in a manifest by itself, whatever its program is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.program import structures
from hostcall_mlir.program.dtypes import DTYPES
from hostcall_mlir.program.manifest_schema import FILE, Callback, File, Manifest, Spec
from hostcall_mlir.program.structures import Structure

_SHA256 = re.compile(r"[0-9a-f]{64}")


def problems_of(manifest: Manifest, saved: bool = True) -> Iterator[str]:
    """What is wrong with a manifest; its files are looked at only where it is a `saved` one."""
    files = [manifest.program, *([manifest.variables] if manifest.variables else [])]
    for file in files if saved else ():
        yield from _problems_of_file(file)
    if manifest.inputs_of("variable") and manifest.variables is None and saved:
        yield "there are inputs that are variables, and no file that holds them"
    for entry in manifest.inputs:
        yield from _problems_of_spec(entry.spec, f"input '{entry.name}'")
        if entry.spec.bounded:
            yield f"input '{entry.name}' is of bounded size, which only results can be"
    yield from _problems_of_order([e.kind for e in manifest.inputs], ("argument", "variable"))
    yield from _problems_of_order(
        [e.kind for e in manifest.outputs], ("result", "variable", "size")
    )
    yield from _twice([e.name for e in manifest.inputs_of("variable")], "variable")
    yield from _twice([e.name for e in manifest.outputs_of("variable")], "new value of variable")
    yield from _problems_of_outputs(manifest)
    yield from _problems_of_arguments(manifest.arguments, len(manifest.inputs_of("argument")), "")
    results = len(manifest.outputs_of("result"))
    if problem := structures.problem_of(manifest.results, results):
        yield f"results: {problem}"
    yield from _twice([callback.name for callback in manifest.callbacks], "callback")
    for callback in manifest.callbacks:
        yield from _problems_of_callback(callback)


def _problems_of_file(file: File) -> Iterator[str]:
    path = PurePosixPath(file.path)
    # A backslash is a separator elsewhere, and a colon can be behind the name of a drive.
    if path.name != file.path or file.path in ("", ".", "..", FILE) or {*file.path} & {*"\\:\0"}:
        yield f"'{file.path}' is not the plain name of a file beside {FILE}"
    if not _SHA256.fullmatch(file.sha256):
        yield f"'{file.sha256}' is not the SHA-256 of '{file.path}'"


def _problems_of_spec(spec: Spec, what: str) -> Iterator[str]:
    if spec.dtype not in DTYPES:
        yield f"{what} is of dtype '{spec.dtype}', which is none of {', '.join(sorted(DTYPES))}"
    if [*spec.bounded] != sorted({*spec.bounded}) or any(
        dim >= len(spec.shape) for dim in spec.bounded
    ):
        yield f"{what} has bounded dimensions {[*spec.bounded]}, which its shape does not have so"


def _problems_of_order(kinds: Sequence[str], order: Sequence[str]) -> Iterator[str]:
    if [*kinds] != sorted(kinds, key=order.index):
        yield f"those of kind {', '.join(order)} have to come in this order"


def _problems_of_outputs(manifest: Manifest) -> Iterator[str]:
    variables = {entry.name: entry.spec for entry in manifest.inputs_of("variable")}
    sizes = []
    for entry in manifest.outputs:
        yield from _problems_of_spec(entry.spec, f"output '{entry.name}'")
        if entry.kind == "variable" and variables.get(entry.name) != entry.spec:
            yield f"output '{entry.name}' is the new value of no variable among the inputs"
        if entry.kind == "size":
            sizes.append((entry.of, entry.dim))
            if entry.spec != Spec("int32", ()):
                yield f"output '{entry.name}' is a size, which is an int32 without dimensions"
    bounded = [
        (number, dim)
        for number, entry in enumerate(manifest.outputs)
        for dim in entry.spec.bounded
        if entry.kind == "result"
    ]
    if Counter(sizes) != Counter(bounded):
        yield "outputs: there has to be one size for each bounded dimension of a result"


def _problems_of_arguments(arguments: Structure, count: int, where: str) -> Iterator[str]:
    if problem := structures.problem_of(arguments, count):
        yield f"{where}arguments: {problem}"
    elif not (isinstance(arguments, dict) and "tuple" in arguments):
        yield f"{where}arguments: has to be a tuple"


def _problems_of_callback(callback: Callback) -> Iterator[str]:
    what = f"callback '{callback.name}'"
    if not custom_calls.is_name(callback.name):
        yield f"{what}: a program cannot have such a name in it"
    if callback.function is not None and not custom_calls.is_qualified(callback.function):
        yield f"{what}: function '{callback.function}' is not of the form module:qualname"
    if callback.timeout is not None and not 0 < callback.timeout < float("inf"):
        yield f"{what}: a timeout of {callback.timeout} seconds"
    yield from _problems_of_keywords(callback, what)
    if not callback.calls:
        yield f"{what} is called nowhere"
    for call in callback.calls:
        for spec in (*call.operands, *call.results):
            yield from _problems_of_spec(spec, what)
    for operands, results in {(len(c.operands), len(c.results)) for c in callback.calls}:
        yield from _problems_of_arguments(callback.arguments, operands, f"{what}: ")
        if problem := structures.problem_of(callback.results, results):
            yield f"{what}: results: {problem}"


def _problems_of_keywords(callback: Callback, what: str) -> Iterator[str]:
    for name in (*callback.keywords, *callback.fixed):
        if not name.isidentifier():
            yield f"{what}: the keyword '{name}' is no name of Python's"
    yield from _twice([*callback.keywords, *callback.fixed], f"{what}: keyword")
    arguments = callback.arguments
    items = arguments.get("tuple", ()) if isinstance(arguments, dict) else ()
    if len(callback.keywords) > len(items):
        yield f"{what}: has more keywords than arguments"
    for name, text in callback.fixed.items():
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            yield f"{what}: {name}={text} is no literal of Python's"


def _twice(names: Sequence[str], what: str) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' is there {count} times"

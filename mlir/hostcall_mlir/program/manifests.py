"""The file `manifest.json`: its schema, its own consistency, and its match with the program.

docs/exporting.md describes the fields. A field that this version does not know is an error, since
the writer of the field meant something by it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import ml_dtypes
import msgspec
import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir.jaxlib_names import is_token
from hostcall_mlir.program import structures
from hostcall_mlir.program.structures import Structure
from hostcall_runtime._errors import ProgramError as ProgramError
from hostcall_runtime._errors import counted


def listed(problems: Iterable[str]) -> str:
    """Return problems as the lines of a list."""
    return "\n".join(f"  - {problem}" for problem in problems)


FORMAT = 1
FILE = "manifest.json"
_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Effect = Literal["ordered", "unordered", "pure"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all parts of a manifest."""


class Spec(_Record, frozen=True):
    """The dtype and shape of an array."""

    dtype: str  # its name in NumPy or ml_dtypes
    shape: tuple[_Size, ...]  # the size of each dimension, or its bound if it is bounded
    # The dimensions whose true sizes are known only when the program runs.
    bounded: tuple[_Size, ...] = ()


class File(_Record, frozen=True):
    """A file of the program, beside the manifest."""

    path: str
    sha256: str = ""


class Input(_Record, frozen=True):
    """An argument of @main: an argument of the user's function, or the value of a variable."""

    kind: Literal["argument", "variable"]
    name: str
    spec: Spec


class Output(_Record, frozen=True):
    """A result of @main: that of the user's function, a variable's new value, or a true size."""

    kind: Literal["result", "variable", "size"]
    name: str  # of the variable
    spec: Spec
    of: int | None = None  # the output whose size it is, in the dimension `dim`
    dim: int | None = None


class ManifestCall(_Record, frozen=True):
    """One host call of the program; the specs are those that the function sees."""

    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]
    effect: Effect
    location: str | None = None


class ManifestCallback(_Record, frozen=True):
    """A Python function that the program calls by one convention."""

    name: str
    function: str | None  # its `module:qualname`, None if only the user can give the function
    kind: Literal["numpy", "eager"]
    signature: str | None  # its parameters, as `signature_of` returns them
    # The structure of its arguments, a tuple whose leaves number a call's operands.
    arguments: Structure
    results: Structure  # the structure of its results, whose leaves number a call's results
    borrow: bool = False  # whether it only reads its arguments, and only during the call
    out: bool = False  # whether it writes its results into arrays that it gets as `out`
    timeout: float | None = None  # the most seconds that a call may take
    # Whether calls without side effects may run beside others, on any thread.
    concurrent: bool = False
    # The keywords by which the last arguments are passed, one for each.
    keywords: tuple[str, ...] = ()
    fixed: dict[str, str] = {}  # further keyword arguments, as Python literals
    calls: tuple[ManifestCall, ...] = ()  # its calls, in the order of the program's text


class Manifest(_Record, frozen=True):
    """The facts that `load` needs about a program, beside its code."""

    made_by: dict[str, str]
    function: str
    inputs: tuple[Input, ...]
    arguments: Structure
    outputs: tuple[Output, ...]
    results: Structure
    callbacks: tuple[ManifestCallback, ...] = ()
    program: File = File("program.stablehlo")  # both files are filled in when it is saved
    variables: File | None = None
    sha256: str = ""  # of the other fields, and so of the hashes of both files
    format: int = FORMAT

    def inputs_of(self, kind: str) -> list[Input]:
        """Return the inputs of a kind, in their order."""
        return [entry for entry in self.inputs if entry.kind == kind]

    def with_inputs(self, args: tuple[Any, ...]) -> list[tuple[Input, Any]]:
        """Return each argument of the program with its value, from those of the function."""
        inputs = self.inputs_of("argument")
        names = [entry.name for entry in inputs]
        who = f"the arguments of {self.function}"
        return [*zip(inputs, structures.flatten(self.arguments, args, who, names), strict=True)]

    def outputs_of(self, kind: str) -> list[Output]:
        """Return the outputs of a kind, in their order."""
        return [entry for entry in self.outputs if entry.kind == kind]


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as the text of its file."""
    # The format comes first, since a reader has to check it first.
    fields: dict[str, Any] = {"format": FORMAT} | msgspec.to_builtins(manifest)
    fields["sha256"] = digest_of(fields)
    return msgspec.json.format(msgspec.json.encode(fields), indent=2)


def digest_of(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the fields in a manifest's file, that of the SHA-256 excepted."""
    # Spaces and lines do not count, so that a tool may lay out the file in another way.
    others = {name: value for name, value in fields.items() if name != "sha256"}
    return hashlib.sha256(msgspec.json.encode(others)).hexdigest()


def decode(data: bytes, reader: str) -> Manifest:
    """Read a manifest from the text of its file; errors name the hostcall that reads it."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProgramError(f"{FILE} is damaged, or not JSON: {error}.") from error
    _check_format(fields, reader)
    try:
        _check_digest(fields)
        return msgspec.convert(fields, Manifest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProgramError(
            f"{FILE} is not as format {FORMAT} has it: {error}. It was changed by hand, or not "
            "written by hostcall."
        ) from error


def is_manifest(data: bytes) -> bool:
    """Return whether a file is a manifest of any format, and not another program's JSON."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(fields, dict) and {"format", "made_by", "program"} <= fields.keys()


def _check_format(fields: Any, reader: str) -> None:
    found = fields.get("format") if isinstance(fields, dict) else None
    if type(found) is not int:
        raise ProgramError(f"{FILE} does not say which format it has: hostcall did not write it.")
    if found != FORMAT:
        remedy = "install a newer hostcall" if found > FORMAT else "export the program once more"
        made_by = fields.get("made_by")
        raise ProgramError(
            f"{FILE} is of format {found}, made by {made_by}, and {reader} reads format {FORMAT}: "
            f"{remedy}."
        )


def _check_digest(fields: Mapping[str, Any]) -> None:
    written, found = fields.get("sha256"), digest_of(fields)
    if written != found:
        raise ProgramError(
            f"{FILE} is not the file that was exported: the SHA-256 of its other fields is "
            f"{found}, and its field sha256 is {written}. Copy the directory once more, or export "
            "the program again."
        )


_NAMES = {element: name for name, element in custom_calls.ELEMENTS.items()}


def name_of(element: object) -> str | None:
    """Return the dtype name of an MLIR element type, None if NumPy lacks the dtype."""
    return _NAMES.get(str(element))


def dtype_of(name: str) -> np.dtype:
    """Return the dtype for a name of NumPy's or of ml_dtypes'."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def is_of_numpy(dtype: np.dtype) -> bool:
    """Return whether NumPy itself has the dtype, so that files of arrays can name it."""
    return dtype.isbuiltin != 2  # 2 is for other libraries' dtypes; their kinds do not tell


# The targets by which JAX, TensorFlow and hostcall call Python or native code. These calls hold
# numbers or addresses that are valid in one process only.
_OF_ONE_PROCESS = re.compile(
    r"hostcall_(native|joint|reported|start|gate|done)"
    r"|xla_(ffi_|buffer_)?(partitioned_)?python_\w+"
)
# Ops that wait for a peer, which a loaded program does not have.
_WAITING = {"stablehlo.infeed", "stablehlo.outfeed", "stablehlo.recv", "stablehlo.send"}


def spec_of(type_: ir.Type) -> Spec | None:
    """Return the spec of a tensor type, None for an unknown size or a dtype that NumPy lacks."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return None
    dtype = name_of(type_.element_type)
    return None if dtype is None else Spec(dtype, tuple(type_.shape))


def call_of(op: ir.Operation, location: str | None = None) -> ManifestCall | None:
    """Describe a host call that `hostcall-check` accepts; return None if a type has no spec."""
    config = custom_calls.config_of(op)
    operands = _specs([operand.type for operand in op.operands], config, "operands")
    results = _specs(custom_calls.result_types(op), config, "results")
    if operands is None or results is None:
        return None
    return ManifestCall(operands, results, _effect_of(op), location)


def mismatches(module: ir.Module, manifest: Manifest) -> Iterator[str]:
    """Yield the differences between a module and its manifest, and ops that cannot be exported."""
    main = traversal.functions(module).get("main")
    if main is None or not main.regions[0].blocks:
        yield "the program has no function @main"
        return
    type_ = traversal.type_of(main)
    specs = [entry.spec for entry in manifest.inputs]
    yield from _differing("input", type_.inputs, specs)
    # @main returns bounded results with their padding, and the true sizes as further results.
    specs = [Spec(entry.spec.dtype, entry.spec.shape) for entry in manifest.outputs]
    yield from _differing("output", type_.results, specs)
    for op in custom_calls.walk(module):
        target = custom_calls.target_of(op) or ""
        if _OF_ONE_PROCESS.fullmatch(target):
            yield f"the program calls '{target}', which works only in the process that made it"
        elif op.name in _WAITING:
            yield f"the program has an op '{op.name}', which would wait for ever"
    yield from _differing_calls(module, manifest)


def _differing(what: str, types: Sequence[ir.Type], specs: Sequence[Spec]) -> Iterator[str]:
    if len(types) != len(specs):
        yield f"@main has {len(types)} {what}s, and {len(specs)} are listed"
        return
    for number, (type_, spec) in enumerate(zip(types, specs, strict=True)):
        if spec_of(type_) != spec:
            yield f"{what} {number} of @main is {type_}, and listed as {show(spec)}"


def show(spec: Spec) -> str:
    """Return a spec as text for messages: `float32[3, <=5]`."""
    sizes = (
        f"<={size}" if dim in spec.bounded else str(size) for dim, size in enumerate(spec.shape)
    )
    return f"{spec.dtype}[{', '.join(sizes)}]"


def title_of(manifest: Manifest) -> str:
    """Return the function and its arguments as text: `predict(x: float32[32, 3])`."""
    entries = manifest.inputs_of("argument")
    return f"{manifest.function}({', '.join(f'{e.name}: {show(e.spec)}' for e in entries)})"


def _differing_calls(module: ir.Module, manifest: Manifest) -> Iterator[str]:
    listed = {callback.name: [*callback.calls] for callback in manifest.callbacks}
    found: dict[str, list[ManifestCall | None]] = {}
    for op in custom_calls.host_calls(module):
        name = custom_calls.callback_of(op)
        if not isinstance(name, str):
            yield f"a host call has the callback id {name} in the place of a name"
        else:
            found.setdefault(name, []).append(call_of(op))
    for name in found.keys() - listed.keys():
        yield f"the program calls '{name}', which is not listed"
    for name, calls in listed.items():
        in_program = found.get(name, [])
        if len(calls) != len(in_program):
            times, listing = counted(len(in_program), "time"), counted(len(calls), "call")
            yield f"'{name}' is called {times}, and listed with {listing}"
            continue
        for number, (call, other) in enumerate(zip(calls, in_program, strict=True)):
            listed_call = ManifestCall(call.operands, call.results, call.effect)
            if other != listed_call:
                yield (
                    f"call {number} of '{name}' is {_show_call(other)}, and listed as "
                    f"{_show_call(listed_call)}"
                )


def _show_call(call: ManifestCall | None) -> str:
    if call is None:
        return "of types that NumPy does not have"
    operands, results = (", ".join(map(show, specs)) for specs in (call.operands, call.results))
    return f"({operands}) -> ({results}), {call.effect}"


def _specs(
    types: Sequence[ir.Type], config: dict[str, ir.Attribute], side: str
) -> tuple[Spec, ...] | None:
    """Return the specs that a function sees on one side of a call, None if a type has no spec."""
    dynamic, sub_byte = (
        custom_calls.pairs(config[f"{kind}_{side}"]) for kind in ("dynamic", "sub_byte")
    )
    values = [type_ for type_ in types if not is_token(type_)]
    specs = []
    for number, type_ in enumerate(values[: len(values) - len(dynamic)]):
        spec = spec_of(type_)
        if spec is None:
            return None
        visible = [custom_calls.SUB_BYTE[code] for index, code in sub_byte if index == number]
        dtype = name_of(visible[0]) if visible else spec.dtype
        assert dtype is not None
        bounded = sorted(dim for index, dim in dynamic if index == number)
        specs.append(Spec(dtype, spec.shape, tuple(bounded)))
    return tuple(specs)


def _effect_of(op: ir.Operation) -> Effect:
    if not custom_calls.has_side_effect(op):
        return "pure"
    return "ordered" if any(is_token(operand.type) for operand in op.operands) else "unordered"


_SHA256 = re.compile(r"[0-9a-f]{64}")


def problems_of(manifest: Manifest, saved: bool = True) -> Iterator[str]:
    """Yield the problems of a manifest; check its files only if it is a `saved` one."""
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
    # Other systems separate names by backslashes, and put colons behind drive names.
    if path.name != file.path or file.path in ("", ".", "..", FILE) or {*file.path} & {*"\\:\0"}:
        yield f"'{file.path}' is not the plain name of a file beside {FILE}"
    if not _SHA256.fullmatch(file.sha256):
        yield f"'{file.sha256}' is not the SHA-256 of '{file.path}'"


def _problems_of_spec(spec: Spec, what: str) -> Iterator[str]:
    if spec.dtype not in custom_calls.ELEMENTS:
        known = ", ".join(sorted(custom_calls.ELEMENTS))
        yield f"{what} is of dtype '{spec.dtype}', which is not one of {known}"
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


def _problems_of_callback(callback: ManifestCallback) -> Iterator[str]:
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


def _problems_of_keywords(callback: ManifestCallback, what: str) -> Iterator[str]:
    for name in (*callback.keywords, *callback.fixed):
        if not name.isidentifier():
            yield f"{what}: the keyword '{name}' is not a name of Python's"
    yield from _twice([*callback.keywords, *callback.fixed], f"{what}: keyword")
    arguments = callback.arguments
    items = arguments.get("tuple", ()) if isinstance(arguments, dict) else ()
    if len(callback.keywords) > len(items):
        yield f"{what}: has more keywords than arguments"
    for name, text in callback.fixed.items():
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            yield f"{what}: {name}={text} is not a literal of Python's"


def _twice(names: Sequence[str], what: str) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' is there {count} times"

"""`manifest.json` of an exported program: what it holds, and how it is read and written.

docs/exporting.md says what the fields mean. Fields that this version does not know are an error:
whoever wrote them meant something by them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from hostcall_mlir.program.errors import ProgramError
from hostcall_mlir.program.structures import Structure

FORMAT = 1
FILE = "manifest.json"

_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]

Effect = Literal["ordered", "unordered", "pure"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all parts of a manifest are."""


class Spec(_Record, frozen=True):
    """An array.

    Attributes:
      dtype: its name in NumPy or ml_dtypes.
      shape: the size of each dimension, of a bounded one the bound.
      bounded: the dimensions whose true sizes are known only when the program runs.
    """

    dtype: str
    shape: tuple[_Size, ...]
    bounded: tuple[_Size, ...] = ()


class File(_Record, frozen=True):
    """A file of the program, beside the manifest."""

    path: str
    sha256: str = ""


class Input(_Record, frozen=True):
    """An argument of @main: the user's, or the value of a variable."""

    kind: Literal["argument", "variable"]
    name: str
    spec: Spec


class Output(_Record, frozen=True):
    """A result of @main: the user's, a variable's new value, or the true size of a dimension.

    Attributes:
      kind: which of these.
      name: the variable's, where it is one.
      spec: what @main returns.
      of: for a size, the number of the output that has the dimension.
      dim: for a size, the dimension.
    """

    kind: Literal["result", "variable", "size"]
    name: str
    spec: Spec
    of: int | None = None
    dim: int | None = None


class Call(_Record, frozen=True):
    """One host call of the program; the specs are of what the function sees."""

    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]
    effect: Effect
    location: str | None = None


class Callback(_Record, frozen=True):
    """A Python function that the program calls, by one convention.

    Attributes:
      name: what the program calls it.
      function: `module:qualname` where it is found, None where only the user can give it.
      kind: what its arguments are: NumPy arrays or TensorFlow's EagerTensors.
      signature: what `signature_of` says of it.
      arguments: the structure of its arguments, a tuple whose leaves number a call's operands.
      results: the structure of what it returns, whose leaves number a call's results.
      borrow: whether it only reads its arguments, and only during the call.
      out: whether it writes its results into arrays that it is given as `out`.
      timeout: how many seconds a call may take.
      concurrent: whether calls without side effects may run beside others, on any thread.
      keywords: for each of the last arguments the keyword that it is passed by.
      fixed: what else is passed by keyword, as Python literals.
      calls: in the order of the program's text.
    """

    name: str
    function: str | None
    kind: Literal["numpy", "eager"]
    signature: str | None
    arguments: Structure
    results: Structure
    borrow: bool = False
    out: bool = False
    timeout: float | None = None
    concurrent: bool = False
    keywords: tuple[str, ...] = ()
    fixed: dict[str, str] = {}
    calls: tuple[Call, ...] = ()


class Manifest(_Record, frozen=True):
    """All that `load` has to know of a program beside its code.

    `program` and `variables` are filled in when it is saved.
    """

    made_by: dict[str, str]
    function: str
    inputs: tuple[Input, ...]
    arguments: Structure
    outputs: tuple[Output, ...]
    results: Structure
    callbacks: tuple[Callback, ...] = ()
    program: File = File("program.stablehlo")
    variables: File | None = None
    format: int = FORMAT

    def inputs_of(self, kind: str) -> list[Input]:
        """The inputs of a kind, in their order."""
        return [entry for entry in self.inputs if entry.kind == kind]

    def outputs_of(self, kind: str) -> list[Output]:
        """The outputs of a kind, in their order."""
        return [entry for entry in self.outputs if entry.kind == kind]


def write(manifest: Manifest) -> bytes:
    """The manifest as the text of its file."""
    # The format stands first, since whoever reads the file has to look at it first.
    fields: dict[str, Any] = msgspec.to_builtins(manifest)
    return msgspec.json.format(msgspec.json.encode({"format": FORMAT} | fields), indent=2)


def read(data: bytes, reader: str) -> Manifest:
    """The manifest in a file.

    Args:
      data: the file's text.
      reader: which hostcall reads it, for messages.

    Raises:
      ProgramError: when it is no manifest, or one of another format.
    """
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProgramError(f"{FILE} is damaged, or no JSON: {error}.") from error
    _check_format(fields, reader)
    try:
        return msgspec.convert(fields, Manifest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProgramError(
            f"{FILE} is not as format {FORMAT} has it: {error}. It was changed by hand, or not "
            "written by hostcall."
        ) from error


def is_manifest(data: bytes) -> bool:
    """Whether a file is a manifest, of whichever format, and not another program's JSON."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(fields, dict) and {"format", "made_by", "program"} <= fields.keys()


def _check_format(fields: Any, reader: str) -> None:
    found = fields.get("format") if isinstance(fields, dict) else None
    if type(found) is not int:
        raise ProgramError(
            f"{FILE} does not say of which format it is: hostcall has not written it."
        )
    if found != FORMAT:
        remedy = "install a newer hostcall" if found > FORMAT else "export the program once more"
        made_by = fields.get("made_by")
        raise ProgramError(
            f"{FILE} is of format {found}, made by {made_by}, and {reader} reads format {FORMAT}: "
            f"{remedy}."
        )

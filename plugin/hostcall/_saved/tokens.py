"""Qualified tokens of saved graphs: JSON that says which function an op calls, and how.

    hostcall:1:{"id":"pyfunc_0_1f2e3d4c","kind":"numpy","function":"mypackage.solvers:solve",...}

Arguments and results are structures of leaves. A leaf is null (a tensor of any kind), the name of a
dtype, `{"spec": [dtype, shape]}`, `{"bounded": [dtype, bounds, dimensions]}` or
`{"composite": ...}`. Structures are `{"list": [...]}`, `{"tuple": [...]}`,
`{"dict": [[key, item], ...]}` and `{"namedtuple": [name, fields, items]}`.

A token comes out of a file, so its readers trust nothing in it. The library for servers without
Python reads tokens, too: CMake makes its tables of fields from the classes in this file and the
saved options of `Options`.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import re
import zlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec
import tensorflow as tf

from hostcall._functions.options import SAVED, Options
from hostcall._ops.structures import BoundedSpec
from hostcall._tf import token_registry
from hostcall._tf.graph import protos
from hostcall_runtime._errors import LoweringError


class SavedFunctionError(LoweringError):
    """An error for a function of a saved graph that is missing or must not be imported."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """The reason why a function cannot be called, and the line to write."""

    reason: str
    line: str
    error: Exception | None = None  # the cause, if an import has failed


class UnwritableError(ValueError):
    """An error for a function or a value that no token can stand for; the text says why."""


class UnreadableError(ValueError):
    """An error for JSON that stands for no structure; the text shows it."""


def to_json(structure: Any) -> object:
    """Return a structure as JSON; raise an UnwritableError for a value that has no form in it."""
    if structure is None:
        return None
    kind = type(structure)
    if kind in (list, tuple):
        return {kind.__name__: [to_json(item) for item in structure]}
    if kind in (dict, collections.OrderedDict):
        return {"dict": [[_key(key), to_json(item)] for key, item in structure.items()]}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        items = [to_json(item) for item in structure]
        return {"namedtuple": [kind.__name__, list(structure._fields), items]}
    return _write_leaf(structure)


def _write_leaf(leaf: Any) -> object:
    if isinstance(leaf, BoundedSpec):
        return {"bounded": [leaf.dtype.name, leaf.shape.as_list(), list(leaf.dynamic_dims)]}
    if type(leaf) is tf.TensorSpec:
        return {"spec": [leaf.dtype.name, write_shape(leaf.shape)]}
    if isinstance(leaf, tf.TypeSpec):
        try:
            return {"composite": base64.b64encode(protos.encoded(leaf)).decode()}
        except Exception as error:  # another library's class may raise anything
            raise UnwritableError(f"{leaf!r} cannot be written") from error
    try:
        return tf.as_dtype(leaf).name
    except TypeError:
        raise UnwritableError(f"{type(leaf).__name__} objects cannot be written") from None


def _key(key: object) -> object:
    if type(key) not in (str, int):
        raise UnwritableError(f"the key {key!r} of a dict cannot be written")
    return key


def write_shape(shape: tf.TensorShape) -> list[int | None] | None:
    """Return a shape as JSON."""
    return None if shape.rank is None else shape.as_list()


def from_json(value: object) -> Any:
    """Return the structure that JSON stands for; raise an UnreadableError if it stands for none."""
    try:
        return _read(value)
    except UnreadableError:
        raise
    except (TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
        raise UnreadableError(f"{str(value)[:100]} is not a structure: {error}") from None


def _read(value: object) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return tf.as_dtype(value)
    if not isinstance(value, dict) or len(value) != 1:
        raise UnreadableError(f"{str(value)[:100]} is not a structure")
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        items = [_read(item) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_key(key): _read(item) for key, item in content}
    if kind == "namedtuple":
        name, fields, items = content
        return collections.namedtuple(name, fields)(*map(_read, items))
    return _read_leaf(kind, content)


def _read_leaf(kind: str, content: Any) -> object:
    if kind == "spec":
        dtype, shape = content
        return tf.TensorSpec(shape, tf.as_dtype(dtype))
    if kind == "bounded":
        dtype, bounds, dimensions = content
        return BoundedSpec(bounds, tf.as_dtype(dtype), dimensions)
    if kind == "composite":
        try:
            return protos.decoded(base64.b64decode(content, validate=True))
        except Exception as error:  # TensorFlow's decoder may raise anything
            raise UnreadableError(f"it holds no type of a composite tensor: {error}") from None
    raise UnreadableError(f"{kind!r} is not a kind of structure")


_PREFIX = token_registry.QUALIFIED + "1:"

# The form of a place that a file may ask to import from: `module:qualname`.
_IMPORTABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_Index = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
_Shape = list[int | None] | None


class Pickled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the SavedModel carries as a pickle; `leave` is for this process alone."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # the name of its file
    python: str  # the version of Python that the pickle is for
    title: str  # the function's name in messages
    leave: str = ""  # the secret of a load with permission to call the function


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A size of a native code's result: a number, or the size of an input's dimension."""

    size: Annotated[int, msgspec.Meta(ge=-1)] = -1
    input: _Index = 0
    dimension: _Index = 0


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An attribute of an XLA FFI handler: its element type (0 for a text) and its bytes."""

    name: str
    dtype: Annotated[int, msgspec.Meta(ge=0, le=255)]
    base64: str


class NativeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Native code, for processes that have no Python: a C function, or a handler of XLA's FFI."""

    library: str  # the file that the code was loaded from
    symbol: str  # the code's name in that file
    kind: Literal["c", "ffi"]
    results: list[list[Size]] | None = None  # their shapes; None if only Python can compute them
    # Of a C function: the number of arguments, whether the last are sizes, and whether it returns a
    # status.
    arguments: _Index = 0
    sizes: bool = False
    status: bool = False
    attributes: list[Attribute] = []  # of a handler


class FunctionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The user's function that an op calls."""

    place: str | None = None  # `module:qualname`, if another process can import the function
    name: str | None = None  # the one that the user has given it
    pickled: Pickled | None = None  # the function itself
    keywords: list[str] = []  # by which the last arguments are passed
    fixed: dict[str, str] = {}  # the constants that are passed by keyword, as Python source
    native: str | None = None  # the text of `encode_native` for native code

    @property
    def label(self) -> str:
        """The function's name in messages."""
        return self.name or self.place or (self.pickled.title if self.pickled else "")


class DeclaredResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The declared result of a function, as far as it can be written."""

    result: list[Any] | Literal["trace"] | None = None  # a spec for each result, unless a function
    shape_function: bool = False  # whether the declared result was a shape function


# The names of the options that are written as they are.
OPTIONS = tuple(option.name for option in SAVED)

if TYPE_CHECKING:
    Declared: TypeAlias = Any
else:
    # The part of a function's declaration that can be written.
    _types = get_type_hints(Options)
    Declared = msgspec.defstruct(
        "Declared",
        [(option.name, _types[option.name], option.default) for option in SAVED],
        bases=(DeclaredResult,),
        module=__name__,
        frozen=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
    )


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a qualified token, of a function or of a gradient."""

    id: str  # the op's token in the process that traced it, which tells ops apart
    kind: Literal["numpy", "eager", "gradient", "recomputed"]
    inputs: Any  # the number of the op's inputs, or the structure of the arguments
    outputs: Any  # the structure of the results
    at: str = ""  # `file:line` of the call
    function: FunctionRecord | None = None  # the user's; None for gradients
    declared: Declared = Declared()
    callback: bool = False  # whether the function was called by `hostcall.callback`
    copies: bool = False  # whether the function gets arrays of its own in plain graphs
    route: Literal["auto", "custom_call", "partition"] = "auto"
    # The specs of the results that are known in tracing and in plain graphs.
    static: list[Any] = []
    plain: list[Any] = []
    # The shapes that the ops which take the results demand.
    consumers: list[_Shape] = []
    counts: list[int | None] = []
    reasons: list[str] = []
    differentiable: bool = False  # whether the op has a hidden result for its gradient
    orders: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0  # of derivative that the graph asks for
    recorded: bool = False  # whether the graph asks for the derivative of this op's own calls
    # For a gradient: the differentiated function, its outputs with upstream gradients, and its
    # inputs that have gradients.
    of: Record | None = None
    targets: list[_Index] = []
    sources: list[_Index] = []
    # The numbers of the batches that a call is for, outermost first.
    levels: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=100)] = []

    @property
    def root(self) -> Record:
        """The record of the function that a gradient, of any order, differentiates; or this one."""
        record = self
        while record.of is not None:
            record = record.of
        return record

    @property
    def users(self) -> FunctionRecord:
        """The user's function, also for a gradient of any order."""
        function = self.root.function
        assert function is not None
        return function

    def with_leave(self, leave: str) -> Record:
        """Return a copy with another leave to call the pickled function."""
        if self.of is not None:
            return msgspec.structs.replace(self, of=self.of.with_leave(leave))
        function = self.function
        if function is None or function.pickled is None:
            return self
        pickled = msgspec.structs.replace(function.pickled, leave=leave)
        return msgspec.structs.replace(
            self, function=msgspec.structs.replace(function, pickled=pickled)
        )


_decoder = msgspec.json.Decoder(Record)
_native_decoder = msgspec.json.Decoder(NativeRecord)


def encode(record: Record) -> str:
    """Return the token for a record."""
    return _PREFIX + msgspec.json.encode(record).decode()


def decode(token: str) -> Record:
    """Return the record in a token; raise a SavedFunctionError if it is malformed."""
    if not token.startswith(_PREFIX):
        version = token.split(":")[1][:20]
        raise _bad(token, f"its version {version!r} is not 1; a newer hostcall may have written it")
    try:
        record = _decoder.decode(token.removeprefix(_PREFIX).encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _bad(token, str(error) or type(error).__name__) from None
    if (problem := _problem_of(record)) is not None:
        raise _bad(token, problem)
    return record


def encode_native(native: NativeRecord) -> str:
    """Return the text for native code, with a CRC-32: a wrong value can crash a process."""
    text = msgspec.json.encode(native)
    return f"{zlib.crc32(text):08x}{text.decode()}"


def decode_native(text: str) -> NativeRecord:
    """Return the native code in a text of `encode_native`; raise a ValueError if it is damaged."""
    found = text[8:].encode()
    if text[:8] != f"{zlib.crc32(found):08x}":
        raise ValueError("what it says of native code was altered")
    return _native_decoder.decode(found)


def is_importable(place: str) -> bool:
    """Return whether a place has the form `module:qualname`."""
    return _IMPORTABLE.fullmatch(place) is not None


def _problem_of(record: Record) -> str | None:
    is_gradient = record.kind in ("gradient", "recomputed")
    if is_gradient != (record.of is not None) or is_gradient != (record.function is None):
        return f"a record of kind {record.kind!r} with the parts of another one"
    if record.of is not None:
        if record.of.kind == "numpy":
            return "a function of arrays has no gradient"
        return _problem_of(record.of)
    assert record.function is not None
    place = record.function.place
    if not record.function.label:
        return "it names no function"
    if place is not None and not is_importable(place):
        return f"{place[:200]!r} is not a module:name"
    if record.function.native is not None:
        try:
            decode_native(record.function.native)
        except ValueError as error:
            return str(error)
    return None


def _bad(token: str, problem: str) -> SavedFunctionError:
    shown = token if len(token) <= 200 else token[:200] + "..."
    return SavedFunctionError(
        f"hostcall: the graph was damaged or altered: the token of a Python function in it cannot "
        f"be read: {problem}. The token is {shown!r}. Nothing was imported for it. Save the model "
        "again, or take the file from where you trust it."
    )

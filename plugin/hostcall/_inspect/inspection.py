"""The result of `hostcall.inspect`: facts, and a table of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from hostcall import _report
from hostcall._report import Code, Table, folded
from hostcall_runtime._errors import counted


@dataclasses.dataclass(frozen=True)
class Use:
    """A place in a file that names a Python function.

    Attributes:
      kind: the kind of the caller: "tf.numpy_function", "tf.py_function", "tf.compat.v1.py_func",
        "hostcall.callback", "the gradient of ..." one of these, "host call" in an exported program,
        or "layer" and the like in a Keras model.
      of: the signatures and functions of the file that lead there.
      node: the op's name, or the layer's.
      arguments, results: dtypes and shapes, as text.
      line: `file:line` of the call, or "" if it is not known.
    """

    kind: str
    of: tuple[str, ...]
    node: str
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    line: str = ""


@dataclasses.dataclass(frozen=True)
class PythonFunction:
    """A Python function that a file names.

    Attributes:
      name: its name in messages.
      place: the `module:qualname` that it is imported from; None if it cannot be imported.
      given_name: the name that the user has given it, or None.
      pickle: the SHA-256 of its pickle in the file, or None.
      declared: the declared options that differ from the defaults.
      uses: the places that name it.
      problem: the reason why it cannot be called here; "" if none is found without importing it.
      write: the lines to write so that it can be called; "" if it can be called already.
    """

    name: str
    place: str | None = None
    given_name: str | None = None
    pickle: str | None = None
    declared: dict[str, Any] = dataclasses.field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    problem: str = ""
    write: str = ""


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The Python functions that a file names. `print` shows them as a table.

    Attributes:
      path: the path of the file or directory.
      format: "SavedModel", "exported program", "Keras model", "GraphDef" or "MetaGraphDef".
      functions: each function once.
      notes: further facts that the user has to know.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
      ... def program(x):
      ...     return tf.numpy_function(np.sort, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.program = program
      >>> tf.saved_model.save(module, directory)
      >>> hostcall.inspect(directory).headline
      'SavedModel with 1 Python function'
    """

    path: str
    format: str
    functions: tuple[PythonFunction, ...]
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The format and the number of functions, in one line."""
        missing = sum(bool(function.problem) for function in self.functions)
        more = f", of which {missing} cannot be called here as yet" if missing else ""
        return f"{self.format} with {counted(len(self.functions), 'Python function')}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as dicts, lists, strings and numbers."""
        return {"headline": self.headline, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        return _report.as_text(_parts(self))


class InspectionError(ValueError):
    """A file that cannot be inspected; the text has the reason in one line."""


def merged(functions: list[PythonFunction]) -> tuple[PythonFunction, ...]:
    """Return the functions, each once with all its uses."""
    found: dict[tuple[Any, ...], PythonFunction] = {}
    for function in functions:
        key = (function.name, function.place, function.pickle, function.problem)
        known = found.get(key, dataclasses.replace(function, uses=()))
        found[key] = dataclasses.replace(known, uses=known.uses + function.uses)
    return tuple(found.values())


def _parts(inspection: Inspection) -> Iterator[str | Table]:
    yield f"{inspection.path}: {inspection.headline}"
    yield from inspection.notes
    if inspection.functions:
        rows = [
            (_name(one), "\n".join(map(_use, one.uses)), one.problem or "can be called")
            for one in inspection.functions
        ]
        columns = {"function": folded(3), "used": folded(5), "here": folded(3)}
        yield Table(columns, rows, options={"show_lines": True})
    lines = dict.fromkeys(function.write for function in inspection.functions if function.write)
    if lines:
        yield "\nIf you trust the file, write:\n"
        yield from (Code(f"    {line}") for line in lines)


def _name(function: PythonFunction) -> str:
    place = [function.place] if function.place not in (None, function.name) else []
    carried = ["a pickle in the file"] if function.pickle else []
    declared = [f"{name}={value}" for name, value in function.declared.items()]
    return "\n".join(map(str, [function.name, *place, *carried, *declared]))


def _use(use: Use) -> str:
    of = f" in {', '.join(use.of)}" if use.of else ""
    line = f" at {use.line}" if use.line else ""
    flow = f"\n  {_listed(use.arguments)} → {_listed(use.results)}" if use.arguments else ""
    return f"{use.kind}, {use.node}{of}{line}{flow}"


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(values) or "?"

"""Random programs as data: what the generator draws, and what a failing test prints."""

import dataclasses
import functools
import itertools
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

DTYPES = {"f": tf.float64, "i": tf.int32, "b": tf.bool, "s": tf.string}


@dataclasses.dataclass(frozen=True)
class Type:
    """The properties of a value that are known when a program is drawn.

    Attributes:
      kind: "f" for float64, "i" for int32, "b" for bool, "s" for string.
      dims: a name for each size; equal names are equal sizes. "n" is that of the input, numbers are
        themselves. Those that begin with "h" are told by a function on the host, those with an "x"
        in them only by the run.
    """

    kind: str
    dims: tuple[str, ...]

    @property
    def is_dynamic(self) -> bool:
        return any("x" in dim for dim in self.dims)


@dataclasses.dataclass(frozen=True, repr=False)
class Data:
    """Prints itself as code that makes it, without what is as by default."""

    def __repr__(self) -> str:
        values = {field: getattr(self, field.name) for field in dataclasses.fields(self)}
        said = [f"{field.name}={v!r}" for field, v in values.items() if v != field.default]
        return f"{type(self).__name__}({', '.join(said)})"


@dataclasses.dataclass(frozen=True, repr=False)
class Statement(Data):
    """One op of a program, in `OPS` or `FORMS`: its results are appended to the values.

    `args` are positions in the list of values, `blocks` the bodies of loops, branches, functions.
    """

    op: str
    args: tuple[int, ...] = ()
    param: Any = None
    blocks: tuple["Block", ...] = ()


@dataclasses.dataclass(frozen=True, repr=False)
class Block(Data):
    """Statements, and the positions of the values that they come to."""

    statements: tuple[Statement, ...]
    results: tuple[int, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class Program(Data):
    """A function of a vector of floats and an integer.

    Attributes:
      body: what it does; the first two values are its arguments.
      inputs: what it is called with, one call after another.
      fixed_shapes: whether it is traced for each shape anew; otherwise with an unknown size.
      nested: whether a plain function calls it.
      gradient: None, or where a tape is that the results are differentiated with: "inside" of the
        function or "outside".
    """

    body: Block
    inputs: tuple[tuple[tuple[int, ...], int], ...]
    fixed_shapes: bool = True
    nested: bool = False
    gradient: str | None = None


class PlannedError(Exception):
    """The base class of the errors that programs are meant to raise."""


class PlannedValueError(PlannedError, ValueError):
    """TensorFlow makes an InvalidArgumentError of it."""


class PlannedStopError(PlannedError, StopIteration):
    """TensorFlow makes an OutOfRangeError of it."""


class Home:
    """The namespace of the functions that programs find by name."""


_numbers = itertools.count(1)


@dataclasses.dataclass
class Context:
    """The state of one way to run a program; each way has its own.

    Attributes:
      jit: whether functions are compiled.
      journal: the side effects in Python, in the order in which they happened.
      vector, counter: variables that the graph reads and assigns.
      table: one that the graph reads and fills.
      python_variable: one that only callbacks read and assign: nothing orders these and the graph.
      flags: "no_kernel" when XLA cannot compile an op of the program, "host" when it cannot compile
        a callback: nothing tells the shape of a result, or it is a string; "dynamic" when only the
        run knows a size.
      has_callbacks: whether the program has a script op.
      keep: objects that have to live as long as the program.
      exports: whether the program is exported: Python functions get names, and note all calls.
      functions: those with names, by their names.
    """

    VARIABLES: ClassVar[dict[str, Any]] = {
        "vector": np.arange(3.0), "counter": np.int32(1), "python_variable": np.float64(1.0)
    }  # fmt: skip
    variable: ClassVar[Any] = tf.Variable

    jit: bool
    exports: bool = False
    has_callbacks: bool = False
    journal: list[Any] = dataclasses.field(default_factory=list)
    flags: set[str] = dataclasses.field(default_factory=set)
    keep: list[Any] = dataclasses.field(default_factory=list)
    functions: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """Create a variable when it is first used."""
        if name not in self.VARIABLES:
            raise AttributeError(name)
        variable = self.variable(self.VARIABLES[name], name=name)
        setattr(self, name, variable)
        return variable

    @functools.cached_property
    def table(self) -> Any:
        with tf.init_scope():
            return tf.lookup.experimental.MutableHashTable(
                tf.int64, tf.float64, tf.constant(-1.0, tf.float64)
            )

    def name(self, function: Any) -> str:
        """Puts a function where programs find it by the name that is returned."""
        name = f"function_{next(_numbers)}"
        setattr(Home, name, function)
        function.__module__, function.__qualname__ = __name__, f"{Home.__name__}.{name}"
        self.functions[f"{__name__}:{function.__qualname__}"] = function
        return f"{__name__}:{function.__qualname__}"

    def forget(self) -> None:
        for function in self.functions.values():
            delattr(Home, function.__qualname__.rpartition(".")[2])
        self.functions.clear()

    def reset(self) -> None:
        """Starts anew; creates the variables, too, which tracing must not."""
        self.journal.clear()
        self.__dict__.pop("table", None)
        for name, value in self.VARIABLES.items():
            getattr(self, name).assign(value)

    def variables(self) -> list[np.ndarray]:
        return [getattr(self, name).numpy() for name in self.VARIABLES]

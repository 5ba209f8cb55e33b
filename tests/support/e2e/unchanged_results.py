"""The outcomes of all values that a function may return, for `test_unchanged.py`.

Each program is a value, which functions return for several `Tout`, in eager mode, in graphs and in
Sessions.
"""

import collections
import datetime
import fractions
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

FLOAT = tf.float32
RAGGED = tf.RaggedTensorSpec([None, None], FLOAT)
X = np.array([1.0, 2.0], np.float32)
Pair = collections.namedtuple("Pair", "a b")


class Convertible:
    """An object that NumPy asks for its array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.array is None:
            raise ValueError("no array today")
        return self.array


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def raises() -> Any:
    raise RuntimeError("text")


VALUES: dict[str, Callable[[], Any]] = {
    "array": lambda: X,
    "numpy scalar": lambda: np.float32(1),
    "numpy bool": lambda: np.bool_(True),
    "float": lambda: 1.5,
    "not a number": lambda: float("nan"),
    "int": lambda: 1,
    "large int": lambda: 2**40,
    "too large int": lambda: 2**70,
    "negative int": lambda: -1,
    "bool": lambda: True,
    "complex": lambda: 1j,
    "None": lambda: None,
    "array of None": lambda: np.array(None),
    "list of None": lambda: [None],
    "list with None": lambda: [X, None],
    "pair": lambda: (X, X),
    "list of two": lambda: [X, X],
    "triple": lambda: (X, X, X),
    "list of one": lambda: [X],
    "tuple of one": lambda: (X,),
    "empty tuple": lambda: (),
    "list of a list": lambda: [[1.0, 2.0]],
    "list of lists": lambda: [[1.0, 2.0], [3.0, 4.0]],
    "list of empty lists": lambda: [[], []],
    "list of floats": lambda: [1.0, 2.0],
    "list of ints": lambda: [1, 2],
    "ragged list": lambda: [[[1.0], [1.0, 2.0]]],
    "named tuple": lambda: Pair(X, X),
    "deque": lambda: collections.deque([X]),
    "array and text": lambda: (X, "text"),
    "text and array": lambda: ("text", X),
    "array and object": lambda: (X, object()),
    "array and doubles": lambda: (X, X.astype(np.float64)),
    "doubles": lambda: X.astype(np.float64),
    "halves": lambda: X.astype(np.float16),
    "bfloats": lambda: X.astype(tf.bfloat16.as_numpy_dtype),
    "ints": lambda: np.array([1, 2], np.int32),
    "long ints": lambda: np.array([1, 2]),
    "big-endian ints": lambda: [np.array([1, 2], ">i4"), X],
    "bools": lambda: np.array([True]),
    "Fortran order": lambda: np.asfortranarray(np.ones((2, 3), np.float32).cumsum(0)),
    "strides": lambda: np.arange(10, dtype=np.float32)[::-3],
    "no elements": lambda: np.zeros((0, 3), np.float32),
    "text": lambda: "héé",
    "bytes": lambda: b"a\0b",
    "texts": lambda: ["a", "bcd"],
    "array of texts": lambda: np.array(["a", "bé"]),
    "array of bytes": lambda: np.array([b"a", b"bc\0"]),
    "objects that are texts": lambda: objects("a", b"b"),
    "objects that are numbers": lambda: objects(1.0, 2.0),
    "objects that are None": lambda: objects(None, None),
    "a text and an object": lambda: objects("a", object()),
    "a text and a ragged tensor": lambda: objects("a", tf.ragged.constant([[1.0], [2.0, 3.0]])),
    "a date": lambda: datetime.date(2020, 1, 1),
    "a fraction": lambda: [fractions.Fraction(1, 2)],
    "durations": lambda: np.array([1], "timedelta64[s]"),
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "records": lambda: np.zeros(2, [("a", np.float32)]),
    "long doubles": lambda: np.zeros(2, np.longdouble),
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "class": lambda: object,
    "range": lambda: range(2),
    "ellipsis": lambda: ...,
    "memory": lambda: memoryview(b"ab"),
    "matrix": lambda: np.matrix([[1.0, 2.0]], np.float32),
    "masked array": lambda: np.ma.masked_array(X, [True, False]),
    "convertible": lambda: Convertible(X),
    "list of a convertible": lambda: [Convertible(X)],
    "convertible to doubles": lambda: Convertible(X.astype(np.float64)),
    "not convertible today": lambda: Convertible(None),
    "tensor": lambda: tf.constant(X),
    "list of tensors": lambda: [tf.constant(X), tf.constant(X)],
    "list of a list of tensors": lambda: [[tf.constant(1.0), tf.constant(2.0)]],
    "tensor of doubles": lambda: tf.constant(X, tf.float64),
    "tensor of strings": lambda: tf.constant(["a"]),
    "ragged tensor": lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]),
    "list with a ragged tensor": lambda: [X, tf.ragged.constant([[1.0], [2.0, 3.0]])],
    "sparse tensor": lambda: tf.sparse.from_dense([[1.0, 0.0]]),
    "indexed slices": lambda: tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0])),
    "variable": lambda: tf.Variable(X),
    "pair with a variable": lambda: (X, tf.Variable(X)),
    "shape": lambda: tf.TensorShape([1, 2]),
    "dtype": lambda: tf.float32,
    "nothing, but an error": raises,
    "nothing, but an end": lambda: next(iter(())),
}

TOUTS: dict[str, Any] = {
    "float32": FLOAT,
    "(float32, float32)": (FLOAT, FLOAT),
    "[]": [],
    "int32": tf.int32,
    "string": tf.string,
    "another shape": tf.TensorSpec([3], FLOAT),
    "ragged": RAGGED,
    "[float32, ragged]": [FLOAT, RAGGED],
}

# The values that stock TensorFlow does not take for the Tout of a numpy_function.
SPECS = {"another shape", "ragged", "[float32, ragged]"}


def in_session(program: Callable[[], Any]) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(program())


@functools.cache
def traced(program: Callable[[], Any]) -> Callable[[], Any]:
    """The program as a graph, traced once: no graph knows what its Python function returns."""
    return tf.function(program, autograph=False)


def in_graph(program: Callable[[], Any]) -> Any:
    return traced(program)()


def eagerly(program: Callable[[], Any]) -> Any:
    return program()


def ways(op: Any, name: str) -> list[Any]:
    if op is tf.numpy_function and name in SPECS:
        return []
    if name == "float32":
        return [eagerly, in_graph, in_session]  # the same op in all three, but for eager arrays
    return [in_graph]


# The result of the Python functions of all cases, changed from one value to the next.
_returned: list[Callable[[], Any]] = []

CASES = {
    f"{op.__name__}, {name}, {run.__name__}": functools.partial(
        run, functools.partial(op, lambda _: _returned[-1](), [X], tout)
    )
    for name, tout in TOUTS.items()
    for op in (tf.py_function, tf.numpy_function)
    for run in ways(op, name)
}


def outcomes_of(value: Callable[[], Any]) -> dict[str, Any]:
    _returned[:] = [value]
    return {name: outcome(case) for name, case in CASES.items()}


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return described(run())
    except Exception as error:
        text = error.message if isinstance(error, tf.errors.OpError) else str(error)
        return type(error).__name__, without_names(text)


def described(result: Any) -> Any:
    if isinstance(result, tf.RaggedTensor):
        return "ragged", str(result.to_list())
    if isinstance(result, tf.SparseTensor):
        return "sparse", described(result.indices), described(result.values)
    if isinstance(result, list | tuple):
        return type(result).__name__, *map(described, result)
    if isinstance(result, tf.Tensor) and result.dtype not in (tf.variant, tf.resource):
        result = result.numpy()
    if isinstance(result, np.ndarray | np.generic):
        return str(result.dtype), result.shape, result.astype(str).tolist()
    return repr(result) if isinstance(result, bytes | str) else type(result).__name__


def without_names(text: str) -> str:
    """The text without what differs from run to run, the traceback, and hostcall's advice."""
    text = re.sub(r"(?s)\sThis is [^\n]*\.\nLikely cause: .*?Write:\n    [^\n]*\n", "", text)
    text = re.sub(r"(?s)^.*\nNode: '[^\n]*'\n", "", text)
    text = re.sub(r"(?s)^Graph execution error:.*?\n\n(?=\S)(?!Detected)", "", text)
    text = re.sub(r"(?s)\n?Traceback \(most recent call last\):.*", "", text)
    text = re.sub(r"(?s)\s*\[\[\{\{node .*", "", text)
    text = re.sub(r"\{\{function_node .*?\}\} |\[Op:.*", "", text)
    text = re.sub(r"pyfunc_\d+(_[0-9a-f]{8})?", "pyfunc", text)
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    # With a hidden result, an exception says the same as the kernel says otherwise.
    return re.sub(r"^ValueError: (pyfunc returns)", r"\1", text).strip()


PROGRAMS = {name: (lambda value=value: outcomes_of(value)) for name, value in VALUES.items()}

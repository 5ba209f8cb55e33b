"""hostcall._saved.writing: what is said and recorded of functions when models are saved."""

import ctypes
import re
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import tensorflow as tf
from numba import types

import hostcall
from hostcall._saved import decoding, tokens, writing
from hostcall._saved.tokens import NativeRecord, SavedFunctionError, Size
from hostcall._tf import token_registry
from hostcall._tf.graph import attributes
from tests.support import native_code
from tests.support.saved import functions as users

SPEC = tf.TensorSpec([4], tf.float32)
X = tf.constant([4.0, 1.0, 1.0, 3.0])


def saved(program: Any, path: Path) -> str:
    module = tf.Module()
    module.program = tf.function(program, input_signature=[SPEC], autograph=False)
    tf.saved_model.save(module, str(path))
    return str(path)


def tokens_in(path: str) -> list[str]:
    data = (Path(path) / "saved_model.pb").read_bytes()
    return [m.decode() for m in re.findall(rb"hostcall:1:\{[^\x00-\x1f]*\}|pyfunc_\w+", data)]


def test_functions_without_a_name_are_listed_in_one_warning(tmp_path: Path) -> None:
    def local(v: Any) -> Any:
        return v * 2

    def program(x: Any) -> Any:
        y = tf.numpy_function(local, [x], tf.float32)
        z = tf.py_function(lambda v: v - 1, [y], tf.float32)
        return tf.numpy_function(users.halve, [z], tf.float32)

    with pytest.warns(UserWarning, match="a SavedModel is written") as warned:
        path = saved(program, tmp_path)
    # The first save of a process may warn of more: what TensorFlow and Python deprecate.
    (text,) = [str(one.message) for one in warned if one.category is UserWarning]
    assert text.count("  - ") == 2
    assert "local (" in text
    assert "test_writing.py" in text
    assert "defined inside of another function" in text
    assert ": a lambda" in text
    assert 'hostcall.register(local, "mymodel::local")' in text
    assert 'hostcall.provide("mymodel::local", local)' in text
    loaded = tf.saved_model.load(path)  # they live on in this process, without a warning
    np.testing.assert_array_equal(loaded.program(X), (X * 2 - 1) / 2)


def test_functions_with_a_name_are_saved_without_a_warning(tmp_path: Path) -> None:
    minus = hostcall.register(lambda v: v - 1, "ns::minus")
    path = saved(lambda x: tf.numpy_function(minus, [x], tf.float32), tmp_path)
    (token,) = {token for token in tokens_in(path) if token.startswith("hostcall")}
    function = tokens.decode(token).function
    assert function is not None
    assert (function.name, function.place) == ("ns::minus", None)
    np.testing.assert_array_equal(tf.saved_model.load(path).program(X), X - 1)


def test_what_was_replaced_in_a_loop_is_not_written(tmp_path: Path) -> None:
    def program(x: Any) -> Any:
        return tf.vectorized_map(lambda v: tf.numpy_function(users.halve, [v], v.dtype), x)

    path = saved(program, tmp_path)
    data = (Path(path) / "saved_model.pb").read_bytes()
    assert tokens_in(path)
    assert attributes.REPLACED.encode() not in data
    np.testing.assert_array_equal(tf.saved_model.load(path).program(X), X / 2)


def test_models_loaded_here_call_the_functions_that_were_saved(tmp_path: Path) -> None:
    """Each model calls its own functions, whatever has their names now."""
    hostcall.register(first := lambda v: v + 1, "ns::f")
    one = saved(lambda x: tf.numpy_function(first, [x], tf.float32), tmp_path / "1")
    hostcall.register(second := lambda v: v + 2, "ns::f")
    two = saved(lambda x: tf.numpy_function(second, [x], tf.float32), tmp_path / "2")
    models = [tf.saved_model.load(path) for path in (one, two, one)]
    for model, added in zip(models, (1, 2, 1), strict=True):
        np.testing.assert_array_equal(model.program(X), X + added)


def test_what_is_declared_otherwise_here_is_a_warning_that_shows_both() -> None:
    record = tokens.Record(
        id="pyfunc_0_00000000",
        kind="numpy",
        inputs=1,
        outputs="float32",
        function=tokens.FunctionRecord(name="ns::declared"),
        declared=tokens.Declared(timeout=5.0),
        static=[{"spec": ["float32", None]}],
        plain=[{"spec": ["float32", None]}],
    )
    hostcall.provide("ns::declared", hostcall.declare(lambda v: v, timeout=7.0))
    with pytest.warns(UserWarning, match=r"ns::declared.*timeout=7.0 here, and 5.0 there"):
        spec = decoding.resolve(tokens.encode(record))
    assert spec.options.timeout == 7.0


def graph_with(function: Any) -> Any:
    with tf.Graph().as_default() as graph:
        tf.numpy_function(function, [tf.zeros([4])], tf.float32, name="y")
    return graph


def token_of(graph_def: Any) -> str:
    (node,) = [node for node in graph_def.node if node.op == "PyFunc"]
    return node.attr["token"].s.decode()


def test_graphs_are_named_in_a_copy() -> None:
    graph = graph_with(users.halve)
    graph_def = graph.as_graph_def()
    named = hostcall.name_functions(graph_def)
    assert token_of(graph_def).startswith("pyfunc_")
    assert tokens.decode(token_of(named)).users.place == f"{users.__name__}:halve"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        (y,) = tf.graph_util.import_graph_def(named, return_elements=["y:0"])
        np.testing.assert_array_equal(session.run(y), np.zeros(4))


def test_functions_without_a_name_are_listed_where_the_user_asks_for_names(tmp_path: Path) -> None:
    graph = graph_with(lambda v: v)
    with (
        hostcall.save_options(pickle=True),  # which a graph of its own has no place for
        pytest.warns(UserWarning, match="a graph is written") as warned,
    ):
        named = hostcall.name_functions(graph.as_graph_def())
    assert ": a lambda" in str(warned[0].message)
    assert "pickle=True" not in str(warned[0].message)
    assert named == graph.as_graph_def()
    tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")  # as ever, and silently


@pytest.mark.parametrize("module", [tf.io, tf.compat.v1.io, tf.compat.v1.train])
def test_files_of_write_graph_have_names(module: Any, tmp_path: Path) -> None:
    file = module.write_graph(graph_with(users.halve), str(tmp_path), "graph.pb", as_text=False)
    graph_def = tf.compat.v1.GraphDef.FromString(Path(file).read_bytes())
    assert tokens.decode(token_of(graph_def)).users.place == f"{users.__name__}:halve"


def test_graph_without_python_is_not_copied() -> None:
    graph_def = tf.Graph().as_graph_def()
    assert hostcall.name_functions(graph_def) is graph_def


# What processes without Python are told of native code and sizes.

FLOATS = ctypes.POINTER(ctypes.c_float)


def native(result: Any, sizes: int = 2) -> Any:
    """A function of one array, which nothing calls."""
    function = native_code.functions()["next_float32"]
    function.argtypes = [FLOATS, FLOATS] + [ctypes.c_int64] * sizes
    function.restype = None
    return hostcall.native(function, result=result)


def recorded(function: Any, shape: Any, result: Any = tf.float32) -> NativeRecord:
    """Return the native function that is recorded of a call with an argument of that shape."""

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])
    def program(x: tf.Tensor) -> Any:
        return tf.numpy_function(function, [x], result)

    graph = program.get_concrete_function().graph
    (op,) = (op for op in graph.get_operations() if op.type == "PyFunc")
    spec = token_registry.find_present(op.get_attr("token").decode())
    record = writing.record_of(spec, writing.asked_so_far)
    assert record.function is not None
    assert tokens.decode(tokens.encode(record)) == record
    if record.function.native is None:
        raise LookupError(record.function)
    return tokens.decode_native(record.function.native)


def at(dimension: int) -> Size:
    return Size(input=0, dimension=dimension)


def test_a_shape_that_does_not_depend_on_arguments() -> None:
    for shape in (None, [None], [4]):
        assert recorded(native(tf.TensorSpec([5], tf.float32)), shape).results == [[Size(5)]]


def test_what_a_graph_hopes_for_is_not_what_the_code_writes() -> None:
    half = native(lambda x: tf.TensorSpec([x.shape[0] // 2], x.dtype))
    assert recorded(half, [None], tf.TensorSpec([2], tf.float32)).results is None
    same = native(lambda x: tf.TensorSpec(x.shape, x.dtype))
    assert recorded(same, [None], tf.TensorSpec([2], tf.float32)).results == [[at(0)]]


def test_where_the_code_is_and_what_it_takes() -> None:
    told = recorded(native(lambda x: x), [2, 3])
    assert told.library == native_code.functions()._name
    assert (told.symbol, told.kind) == ("next_float32", "c")
    assert (told.arguments, told.sizes, told.status) == (4, True, False)
    assert writing.name_of(told).endswith(".so::next_float32")


def test_code_in_memory_has_no_library() -> None:
    pointer = types.CPointer(types.float32)
    compiled = numba.cfunc(types.void(pointer, pointer))(lambda x, y: None)
    named = hostcall.register(hostcall.native(compiled, result=lambda x: x), "tests::compiled")
    with pytest.raises(LookupError, match="tests::compiled"):
        recorded(named, [])


def test_damage_is_noticed() -> None:
    text = tokens.encode_native(recorded(native(lambda x: x), [2, 3]))
    for position in range(len(text)):
        changed = text[:position] + chr(ord(text[position]) ^ 1) + text[position + 1 :]
        with pytest.raises(ValueError, match="was altered"):
            tokens.decode_native(changed)
    function = tokens.FunctionRecord("m:f", native=changed)
    call = tokens.Record(id="a", kind="numpy", inputs=1, outputs="float32", function=function)
    with pytest.raises(SavedFunctionError, match="native code was altered"):
        tokens.decode(tokens.encode(call))


MATRIX = tf.TensorSpec([None, None], tf.float32)
FIRST, SECOND = at(0), at(1)


def sizes(shape: Any, *inputs: tf.TensorSpec) -> Any:
    return writing.sizes_of(lambda specs: [tf.TensorSpec(shape(*specs[0].shape))], inputs)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (lambda n, m: [n, m], [FIRST, SECOND]),
        (lambda n, m: [m, 3, n], [SECOND, Size(3), FIRST]),
        (lambda n, m: [], []),
        (lambda n, m: [n * 1], [FIRST]),
    ],
)
def test_sizes_of_inputs_and_numbers(shape: Any, found: list[Size]) -> None:
    assert sizes(shape, MATRIX) == [found]
    assert sizes(lambda n, m: [m], tf.TensorSpec([None, 4], tf.float32)) == [[Size(4)]]
    many = tf.TensorSpec([None] * 6, tf.float32)
    assert sizes(lambda *sizes: sizes[:1:-1], many) == [[at(size) for size in (5, 4, 3, 2)]]


NO_SIZES: list[Any] = [
    *(lambda n, m: [n + 1], lambda n, m: [n // 2], lambda n, m: [n * m], lambda n, m: [None]),
    *(lambda n, m: [max(n, m)], lambda n, m: [min(n, m)], lambda n, m: [max(n, 1)]),
    *(lambda n, m: [min(n, 1000)], lambda n, m: [n if n % 2 else n + 1], lambda n, m: None),
    *(lambda n, m: [n] * (1 if n > 50 else 2), lambda n, m: [n if m else 0]),
    lambda n, m: [n // 0],
]


@pytest.mark.parametrize("shape", NO_SIZES)
def test_what_is_no_size_of_an_input_is_not_taken_for_one(shape: Any) -> None:
    assert sizes(shape, MATRIX) is None
    assert writing.sizes_of(lambda specs: [], [tf.TensorSpec(None, tf.float32)]) is None

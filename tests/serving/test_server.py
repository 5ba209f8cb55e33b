"""libhostcall_serving.so: a C program computes what Python computes, and says what is wrong."""

import contextlib
import json
import random
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.core.protobuf import saved_model_pb2

import hostcall
from hostcall._saved import tokens
from hostcall._tf.graph import attributes
from tests.support.errors import assert_says
from tests.support.servers.inputs import (
    CHECKED_INPUTS,
    FOUR,
    NATIVE_INPUTS,
    PYTHON_INPUTS,
    VALUE_INPUTS,
)
from tests.support.servers.server import ROOT, Altered, Server, ServingError, Site, build

MODES = ("plain", "compiled")

DYING = ("bad", "die_once_compiled")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return build(tmp_path_factory.mktemp("serving"))


@pytest.fixture(scope="module")
def native_server(site: Site) -> Iterator[Server]:
    """One with the native code, and without workers."""
    with contextlib.closing(Server(site, "native", HOSTCALL_NATIVE_PATH=site.libraries)) as server:
        yield server


@pytest.fixture(scope="module")
def worker_server(site: Site) -> Iterator[Server]:
    """One that has got the library before, as LD_PRELOAD gives it to servers; and a worker."""
    server = Server(
        site,
        "worker",
        LD_PRELOAD=hostcall.serving_library(),
        HOSTCALL_NATIVE_PATH=site.libraries,
        HOSTCALL_WORKER_PYTHON=sys.executable,
        HOSTCALL_ALLOW="tests.support.servers",
        PYTHONPATH=f"{ROOT}:{ROOT / 'mlir'}",
        SERVING_TEST_LIBRARIES=site.libraries,
        SERVING_TEST_MARKER=str(site.folder / "died"),
    )
    yield server
    server.close()


@pytest.fixture(scope="module")
def bare_server(site: Site) -> Iterator[Server]:
    with contextlib.closing(Server(site, "bare")) as server:
        yield server


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NATIVE_INPUTS)
def test_native_code(site: Site, native_server: Server, name: str, mode: str) -> None:
    got = native_server.computed("native", f"{name}_{mode}", NATIVE_INPUTS[name])
    np.testing.assert_array_equal(got, np.asarray(site.said["values"][name], np.float64))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PYTHON_INPUTS)
def test_python_functions(site: Site, worker_server: Server, name: str, mode: str) -> None:
    got = worker_server.computed("python", f"{name}_{mode}", PYTHON_INPUTS[name])
    np.testing.assert_array_equal(got, np.asarray(site.said["values"][name], np.float64))


@pytest.mark.parametrize("mode", MODES)
def test_strings(worker_server: Server, mode: str) -> None:
    assert worker_server.text("python", f"shout_{mode}", FOUR) == ([], ["1.0!"])


def test_what_xla_cannot_have_runs_by_tensorflows_kernels(worker_server: Server) -> None:
    """All other functions are one program: a line in the log tells of each that is not."""
    for name, value in NATIVE_INPUTS.items():
        worker_server.computed("native", f"{name}_compiled", value)
    said = re.findall(
        r"kernels run the function (\w+), and XLA does not: (.*)", worker_server.log()
    )
    reasons = {re.sub(r"^__inference_|_\d+$", "", name): why for name, why in said}
    for name in ("_in_order_loop", "_in_order_batches"):
        assert "side effects more than once" in reasons.pop(name)
    assert "PrintV2" in reasons.pop("_printed")
    assert "a loop carries the resource" in reasons.pop("_table")  # which would end the process
    # The shapes of these are not known, or they return strings.
    others = {name for name in reasons if name.startswith("_")}
    assert others <= {"_unique", "_shout", "_refuse"}, reasons


def test_a_program_assigns_variables(native_server: Server) -> None:
    for count in (1, 2, 3):
        got = native_server.computed("variable", "add", FOUR)
        np.testing.assert_array_equal(got, count * (np.asarray(FOUR) + 1))


# What TensorFlow's kernels run, and why.
UNCOMPILED = {
    "_before_loop": "it checks values before a function, a loop or a branch that calls Python",
    "_inverse": "(MatrixInverse): XLA computes something else than TensorFlow",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CHECKED_INPUTS)
def test_errors_of_values(site: Site, worker_server: Server, name: str, mode: str) -> None:
    good, bad = CHECKED_INPUTS[name]
    signature = f"{name}_{mode}"
    for _ in range(2):
        got = worker_server.computed("checked", signature, good)
        np.testing.assert_allclose(got, site.said["values"][name], rtol=1e-6)
        error = worker_server.failure("checked", signature, bad)
        assert error.code == 3
        is_program = mode == "compiled" and f"_{name}" not in UNCOMPILED
        assert (" at /" in error.message) == is_program, error.message
        assert re.search(r"{{node [^}]*(GatherV2|floordiv|MatrixInverse)}}", error.message)


@pytest.mark.parametrize("mode", MODES)
def test_an_error_comes_before_later_calls(worker_server: Server, mode: str) -> None:
    worker_server.failure("checked", f"in_order_checked_{mode}", 0.0)
    assert worker_server.computed("checked", f"appended_{mode}", 7.0) == 127


def test_an_error_comes_before_variables_are_assigned(worker_server: Server) -> None:
    first = worker_server.computed("checked", "add", FOUR)
    for _ in range(2):
        worker_server.failure("checked", "add", [1.0, 10.0, 3.0, 4.0])
    second = worker_server.computed("checked", "add", FOUR)
    np.testing.assert_array_equal(second - first, 1.0 + np.asarray(FOUR))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VALUE_INPUTS)
def test_graph_modes_values(site: Site, worker_server: Server, name: str, mode: str) -> None:
    got = worker_server.computed("checked", f"{name}_{mode}", VALUE_INPUTS[name])
    np.testing.assert_allclose(got, site.said["values"][name], rtol=1e-6)


def test_integers_of_four_bits_in_a_function_without_calls(worker_server: Server) -> None:
    got = worker_server.computed("checked", "four_bits_alone_plain", FOUR)
    np.testing.assert_array_equal(got, np.asarray(FOUR) - 3.0)


def test_each_call_of_a_function_has_its_own_random_numbers(worker_server: Server) -> None:
    for _ in range(2):
        got = worker_server.computed("checked", "drawn_twice_plain", FOUR)
        np.testing.assert_array_equal(got, np.zeros(4))


def test_programs_with_checks_are_compiled(worker_server: Server) -> None:
    for name, (good, _) in CHECKED_INPUTS.items():
        worker_server.computed("checked", f"{name}_compiled", good)
    for name, why in UNCOMPILED.items():
        said = rf"kernels run the function __inference_{name}_\d+, and XLA does not: .*"
        assert why in re.findall(said, worker_server.log())[0]
    worker_server.computed("checked", "add", FOUR)
    for name in ("_added", *(f"_{name}" for name in [*CHECKED_INPUTS, *VALUE_INPUTS])):
        assert name in UNCOMPILED or f"__inference_{name}_" not in worker_server.log()


def programs_in(model: Any) -> dict[str, Any]:
    """The nodes that have programs, by the names of the functions in Python."""
    return {
        re.sub(r"^__inference_|_\d+$", "", function.signature.name): node
        for function in model.meta_graphs[0].graph_def.library.function
        for node in function.node_def
        if attributes.PROGRAM in node.attr
    }


@pytest.mark.parametrize("change", ["is damaged", "has other arguments"])
def test_a_program_that_does_not_fit(site: Site, tmp_path: Path, change: str) -> None:
    """TensorFlow's kernels run the function instead, which a tool may have changed."""
    folder = tmp_path / "model"
    shutil.copytree(site.model("checked"), folder)
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    nodes = programs_in(model)
    names = {"looked_up": "_divided", "in_order_checked": "_looked_up"}
    other = {name: nodes[of].attr[attributes.PROGRAM].s for name, of in names.items()}
    for name in names:
        value = b"\xff" if change == "is damaged" else other[name]
        nodes[f"_{name}"].attr[attributes.PROGRAM].s = value
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    server = Server(site, f"altered {change}", HOSTCALL_NATIVE_PATH=site.libraries)
    for name in names:
        good, bad = CHECKED_INPUTS[name]
        endpoints = site.said["checked"][f"{name}_compiled"]
        got = server.run(str(folder), endpoints, good)[1]
        np.testing.assert_allclose([*map(float, got)], np.ravel(site.said["values"][name]))
        with pytest.raises(ServingError, match=r"node (GatherV2|floordiv)"):
            server.run(str(folder), endpoints, bad)
    assert server.log().count(f"the program that the graph has for it {change}") == len(names)
    server.close()


@pytest.mark.parametrize("mode", MODES)
def test_many_requests_from_many_threads(worker_server: Server, mode: str) -> None:
    assert worker_server.serve("python", f"both_{mode}", 5000, 2.0, 1.0) == (5000, 0, 0, "")


def test_the_death_of_a_worker_is_an_error_of_the_calls_under_way(worker_server: Server) -> None:
    succeeded, failed, wrong, message = worker_server.serve(*DYING, 1000, 2.0, 0.0)
    assert (succeeded + failed, wrong) == (1000, 0)
    assert 1 <= failed <= 8, message  # of each thread one
    assert_says(message, "the Python worker was lost", "functions:die_once")
    assert worker_server.serve(*DYING, 100, 2.0, 0.0) == (100, 0, 0, "")


@pytest.mark.parametrize("mode", MODES)
def test_a_library_has_to_be_allowed(site: Site, bare_server: Server, mode: str) -> None:
    message = bare_server.failure("native", f"native_{mode}", FOUR).message
    assert "functions:plus_one, called at models.py:" in message
    assert f"{site.libraries}/libserving_test.so" in message
    assert f"export HOSTCALL_NATIVE_PATH={site.libraries}\n" in message


@pytest.mark.parametrize("mode", MODES)
def test_a_python_function_needs_a_worker(native_server: Server, mode: str) -> None:
    message = native_server.failure("python", f"double_{mode}", FOUR).message
    assert_says(message, "functions:double", "HOSTCALL_WORKER_SOCKET=", "HOSTCALL_WORKER_PYTHON=")


@pytest.mark.parametrize("mode", MODES)
def test_what_a_python_function_raises(worker_server: Server, mode: str) -> None:
    error = worker_server.failure("bad", f"refuse_{mode}", FOUR)
    assert error.code == 3
    assert "ValueError: no such sensor" in error.message


@pytest.mark.parametrize("mode", MODES)
def test_what_native_code_returns(native_server: Server, mode: str) -> None:
    error = native_server.failure("native", f"root_{mode}", -1.0)
    assert_says(error.message, "returned status 7", "functions:root")
    late = native_server.failure("native", f"later_{mode}", [-1.0, 2.0, 3.0, 4.0])
    assert "negative, and late" in late.message


@pytest.mark.parametrize("mode", MODES)
def test_a_size_that_only_python_knows(native_server: Server, mode: str) -> None:
    message = native_server.failure("bad", f"odd_{mode}", FOUR).message
    assert "not known without Python" in message
    assert "hostcall.native(function, result=lambda x: tf.TensorSpec(x.shape, x.dtype))" in message


@pytest.mark.parametrize("mode", MODES)
def test_a_shape_that_is_not_the_codes(native_server: Server, mode: str) -> None:
    assert native_server.computed("bad", f"hoped_{mode}", FOUR).tolist() == [2.0, 3.0, 4.0, 5.0]
    message = native_server.failure("bad", f"hoped_{mode}", [1.0] * 64).message
    assert "is of shape [64] for these arguments, and the graph was traced with [4]" in message


def test_a_model_that_was_saved_without_hostcall(native_server: Server) -> None:
    message = native_server.failure("stock", "stock", FOUR).message
    assert "by a key of the process that traced it, 'pyfunc_" in message
    assert "    import hostcall\n" in message


def test_a_library_is_found_in_another_folder(site: Site, tmp_path: Path) -> None:
    library = shutil.copy(f"{site.libraries}/libserving_test.so", tmp_path)
    server = Server(site, "moved", HOSTCALL_NATIVE_PATH=f"/nowhere::{tmp_path}")
    assert server.text("native", "native_plain", FOUR)[1] == ["4", "6", "8", "10"]
    Path(library).unlink()
    (tmp_path / "libhandlers_test.so").symlink_to(f"{site.libraries}/libhandlers_test.so")
    message = server.failure("native", "scale_plain", [1.0, 2.0]).message
    assert f"none of the allowed folders, {tmp_path}" in message
    server.close()


def test_pythons_tensorflow_keeps_its_kernels(run_python: Callable[..., str]) -> None:
    script = """
import ctypes, sys
import tensorflow as tf
if {!r}:
    import hostcall
tf.load_op_library({!r})
ctypes.CDLL({!r})
result = tf.function(
    lambda x: tf.numpy_function(lambda v: v + 1, [x], tf.TensorSpec([2], tf.float32)),
    jit_compile={!r},
)
print(result(tf.constant([1.0, 2.0])).numpy())
"""
    path = hostcall.serving_library()
    assert run_python(script.format("hostcall", path, path, True)) == "[2. 3.]\n"
    stock = script.replace("tf.TensorSpec([2], tf.float32)", "tf.float32")
    assert run_python(stock.format("", path, path, False)) == "[2. 3.]\n"


@pytest.fixture
def altered(site: Site, tmp_path: Path) -> Altered:
    return Altered(site, tmp_path)


SIGNATURES = ("native_plain", "native_compiled", "sums_plain", "sums_compiled")


def test_bits_that_were_flipped(altered: Altered, native_server: Server) -> None:
    rng = random.Random(16)
    unharmed = {"native": ["4", "6", "8", "10"], "sums": ["7"]}
    for count in range(200):
        bit = rng.getrandbits(32)

        def flip(token: bytes, bit: int = bit) -> bytes:
            at = bit % (len(token) * 8)
            return token[: at // 8] + bytes([token[at // 8] ^ 1 << at % 8]) + token[at // 8 + 1 :]

        signature = SIGNATURES[count % len(SIGNATURES)]
        got = altered.outcome(native_server, flip, signature)
        if isinstance(got, ServingError):
            assert "hostcall" in got.message
        else:  # a file and a line are of no account
            assert got == unharmed[signature.partition("_")[0]]


HOSTILE = {
    "version": (b'hostcall:2:{"id":"a"}', "its version '2' is not 1"),
    "no JSON": (b"hostcall:1:{", "it is not JSON"),
    "no UTF-8": (b'hostcall:1:{"id":"\xff\xfe"}', "cannot be read"),
    "depth": (b"hostcall:1:" + b'{"of":' * 50_000 + b"1" + b"}" * 50_000, "it is not JSON"),
    "a number": (b'hostcall:1:{"id":1e999}', "cannot be read"),
    "a list": (b"hostcall:1:[]", "cannot be read"),
    "no function": (b'hostcall:1:{"id":"a","kind":"numpy"}', "it names no function"),
    "unknown fields": (b'hostcall:1:{"id":"a","function":{"x":1}}', "'x' is not a field of"),
    "a pickle": (
        b'hostcall:1:{"id":"a","kind":"numpy","function":{"pickled":{"sha256":"0","python":"3",'
        b'"title":"<lambda> (a.py:1)"}}}',
        "function <lambda> (a.py:1) has no name",
    ),
    "empty": (b"", "by a key of the process"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_tokens(altered: Altered, native_server: Server, kind: str) -> None:
    token, says = HOSTILE[kind]
    for signature in SIGNATURES[:2]:
        got = altered.outcome(native_server, lambda _: token, signature)
        assert says in got.message


def edited(token: bytes, native: dict[str, Any]) -> bytes:
    """The token with other fields of native code, and with the checksum that they have."""
    fields = json.loads(token.removeprefix(b"hostcall:1:"))
    text = json.dumps(json.loads(fields["function"]["native"][8:]) | native)
    fields["function"]["native"] = f"{zlib.crc32(text.encode()):08x}{text}"
    return b"hostcall:1:" + json.dumps(fields).encode()


def with_all_fields(token: bytes) -> bytes:
    """The token with each field that Python knows; null is as good as none."""
    fields = json.loads(token.removeprefix(b"hostcall:1:"))
    native = json.loads(fields["function"]["native"][8:])
    fields["function"] = all_fields(tokens.FunctionRecord) | fields["function"]
    fields["declared"] = all_fields(tokens.Declared) | fields.get("declared", {})
    fields = all_fields(tokens.Record) | fields
    return edited(
        b"hostcall:1:" + json.dumps(fields).encode(), all_fields(tokens.NativeRecord) | native
    )


def all_fields(kind: Any) -> dict[str, None]:
    return dict.fromkeys(kind.__struct_fields__)


def test_each_field_that_python_knows(altered: Altered, native_server: Server) -> None:
    got = altered.outcome(native_server, with_all_fields, "native_plain")
    assert got == ["4", "6", "8", "10"]


# Of a Native: what is changed in it, and what is said of it.
NATIVE = {
    "library": ("/etc/../etc/passwd", "lies in none of the allowed folders"),
    "symbol": ("memcpy", "there is no such function in"),
    "arguments": (2, "a native function of 2 arguments was to be called with 3"),
    "kind": ("python", "the kind of native code is unknown"),
    "results": ([], "has 0 results, and is called by an op with 1"),
}


def with_native(field: str, value: Any) -> Callable[[bytes], bytes]:
    return lambda token: edited(token, {field: value})


@pytest.mark.parametrize("field", NATIVE)
def test_native_code_that_was_altered_with_care(
    altered: Altered, native_server: Server, field: str
) -> None:
    value, says = NATIVE[field]
    for signature in SIGNATURES[:2]:
        got = altered.outcome(native_server, with_native(field, value), signature)
        assert says in got.message
    careless = altered.outcome(
        native_server, lambda token: token.replace(b"_test.so", b"_tesu.so"), SIGNATURES[0]
    )
    assert "what it says of native code was altered" in careless.message


@pytest.mark.parametrize("sizes", [[2**50], [2**53, 2**53]])
def test_results_that_no_memory_holds(
    altered: Altered, native_server: Server, sizes: list[int]
) -> None:
    huge = with_native("results", [[{"size": size} for size in sizes]])
    for signature in SIGNATURES[2:]:
        got = altered.outcome(native_server, huge, signature)
        assert isinstance(got, ServingError), got

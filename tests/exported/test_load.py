"""hostcall_mlir.load: what loaded programs take and return, their variables, files, and errors."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hostcall.jax  # noqa: F401  # so that its handler and ours are registered in one process
import hostcall_mlir
from hostcall_mlir.ir import custom_calls
from hostcall_mlir.program import files, manifests
from hostcall_runtime import prepared
from tests.support.errors import assert_says, raising
from tests.support.exported import functions
from tests.support.exported.programs import F3, FUNCTIONS, TRIPLE, call, load, make, with_call
from tests.support.fate import Fate
from tests.support.jax.helpers import run_python
from tests.support.threads import in_threads

ROOT = Path(__file__).parents[2]


def given(function: Any, name: str = "triple") -> dict[str, Any]:
    """A function in the place of the one that programs call."""
    return {f"{FUNCTIONS}:{name}": function}


def test_process_never_imports_tensorflow_or_hostcall(tmp_path: Path) -> None:
    make(with_call("triple", "tensor<2xi64>")).save(tmp_path)
    script = f"""
import sys
import jax
import numpy as np
import hostcall_mlir
from hostcall_mlir import loading

hostcall_mlir.allow("tests.support")
x = np.array([1 << 40, -1])
one, other = jax.devices()
for partitioned, device in (False, None), (False, other), (True, None), (True, other):
    program = hostcall_mlir.load({str(tmp_path)!r}, partitioned=partitioned, device=device)
    y = program.call(x)
    print(y.tolist(), y.dtype, y.devices() == {{device or one}})
with jax.default_device(other):
    program = hostcall_mlir.load({str(tmp_path)!r})
print(program, program.call(y).devices() == {{other}})
# The second device as one that cannot call back, so that arrays have to go to the first and back.
loading._WITH_HOST_CALLS = ()
y = hostcall_mlir.load({str(tmp_path)!r}, partitioned=True, device=other).call(x)
print(y.tolist(), y.dtype, y.devices() == {{other}})
print([name for name in ("tensorflow", "hostcall") if name in sys.modules])
"""
    two_devices = "--xla_force_host_platform_device_count=2"
    paths = f"{ROOT / 'mlir'}{os.pathsep}{ROOT}"
    printed = run_python(script, PYTHONPATH=paths, XLA_FLAGS=two_devices)
    line = f"{[3 << 40, -3]} int64 True\n"
    shown = "<LoadedProgram predict(x0: int64[2])> True\n"
    assert printed == f"{line * 4}{shown}{line}[]\n"


def test_arrays_of_numpy_and_jax_do_and_go_where_the_program_is(tmp_path: Path) -> None:
    program = load(make(TRIPLE), tmp_path)
    for x in (F3, jax.numpy.asarray(F3), F3.astype(">f4"), np.repeat(F3, 2)[::2]):
        np.testing.assert_array_equal(program.call(x), F3 * 3)


def test_64_bits_go_in_and_out_although_jax_has_none(loaded: Any) -> None:
    text = with_call("triple", "tensor<2xi64>")
    program = loaded(make(text))
    assert not jax.config.jax_enable_x64
    result = program.call(np.array([1 << 40, -1]))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, [3 << 40, -3])
    np.testing.assert_array_equal(program.call(result), [9 << 40, -9])


@pytest.mark.parametrize(
    ("type_", "number", "dtype"),
    [
        ("f32", 2.5, np.float32),
        ("f32", 2, np.float32),
        ("i64", 2, np.int64),
        ("i1", True, np.bool_),
        ("complex<f32>", 2j, np.complex64),
        ("bf16", 2, jax.numpy.bfloat16),
    ],
)
def test_number_takes_the_dtype_of_its_argument(
    type_: str, number: Any, dtype: Any, tmp_path: Path
) -> None:
    type_ = f"tensor<{type_}>"
    text = f"func.func public @main(%x: {type_}) -> {type_} {{ return %x : {type_} }}"
    result = load(make(text), tmp_path).call(number)
    assert result.dtype == dtype
    assert np.asarray(result) == number


def test_structures_of_arguments_and_results(loaded: Any) -> None:
    text = """
func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %b, %a : tensor<f32>, tensor<f32>
}
"""
    pair = {"namedtuple": f"{FUNCTIONS}:Pair", "items": [1, None]}
    made = make(
        text,
        arguments={"tuple": [{"dict": {"a": 0, "b": {"list": [1]}}}]},
        results={"dict": {"first": 0, "pair": pair}},
    )
    result = loaded(made).call({"a": np.float32(1), "b": [np.float32(2)]})
    assert result == {"first": 2, "pair": functions.Pair(1, None)}
    assert isinstance(result["pair"], functions.Pair)


def test_function_writes_into_its_own_arrays_alone(loaded: Any) -> None:
    def triple_in_place(x: np.ndarray) -> np.ndarray:
        x *= 3
        return x

    x = F3.copy()
    y = jax.numpy.asarray(F3)
    program = loaded(make(with_call("triple")), callbacks=given(triple_in_place))
    for _ in range(2):
        np.testing.assert_array_equal(program.call(x), F3 * 3)
        np.testing.assert_array_equal(program.call(y), F3 * 3)
    np.testing.assert_array_equal(x, F3)
    np.testing.assert_array_equal(y, F3)


def test_borrowed_arrays_are_only_to_be_read(loaded: Any) -> None:
    text = f"""
func.func public @main(%x: tensor<3xf32>) -> tensor<i1> {{
  %0 = {call("triple", "(tensor<3xf32>) -> tensor<i1>", "%x")}
  return %0 : tensor<i1>
}}
"""
    is_read_only = given(lambda x: np.asarray(not x.flags.writeable))
    for borrow in False, True:
        made = make(text, of_callbacks={"borrow": borrow})
        assert loaded(made, callbacks=is_read_only).call(F3) == borrow


def test_results_are_written_into_out(loaded: Any) -> None:
    def write_one(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x + 1

    def write_both(x: np.ndarray, out: dict[str, np.ndarray]) -> None:
        write_one(x, out["a"])
        out["b"][...] = x - 1

    made = make(with_call("triple"), of_callbacks={"out": True})
    np.testing.assert_array_equal(loaded(made, callbacks=given(write_one)).call(F3), F3 + 1)
    types = "tensor<3xf32>, tensor<3xf32>"
    text = f"""
func.func public @main(%x: tensor<3xf32>) -> ({types}) {{
  %0:2 = {call("triple", f"(tensor<3xf32>) -> ({types})", "%x")}
  return %0#0, %0#1 : {types}
}}
"""
    made = make(text, of_callbacks={"out": True, "results": {"dict": {"a": 0, "b": 1}}})
    one, other = loaded(made, callbacks=given(write_both)).call(F3)
    np.testing.assert_array_equal(one, F3 + 1)
    np.testing.assert_array_equal(other, F3 - 1)


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        ((), TypeError, "the arguments of predict should be (x0), and there is a tuple of 0"),
        ((F3, F3), TypeError, "there is a tuple of 2 where a tuple of 1 is expected"),
        (("text",), TypeError, "argument 'x0' of predict is a str"),
        (([[1], [1, 2]],), TypeError, "argument 'x0' of predict is not an array"),
        ((object(),), TypeError, "is an object, which is not an array of numbers"),
        ((F3.astype(np.float64),), ValueError, "is float64[3], and the program is compiled for "),
        ((F3.astype(int),), ValueError, "np.asarray(x, np.float32)"),
        ((F3[:2],), ValueError, "is float32[2], and the program is compiled for float32[3]"),
        ((F3.reshape(1, 3),), ValueError, "Export it for arrays of that shape, or pass one of"),
        ((2.5,), ValueError, "is float64[], and"),
        ((jax.numpy.arange(3),), ValueError, "is int32[3], and"),
    ],
)
def test_wrong_arguments_are_told(args: Any, kind: type[Exception], text: str, shared: Any) -> None:
    with pytest.raises(kind) as raised:
        shared.call(*args)
    assert text in str(raised.value)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(make(TRIPLE), tmp_path_factory.mktemp("shared"))


def test_number_that_the_dtype_cannot_hold_is_told(tmp_path: Path) -> None:
    text = "func.func public @main(%x: tensor<i8>) -> tensor<i8> { return %x : tensor<i8> }"
    program = load(make(text), tmp_path)
    with pytest.raises(ValueError, match="300"):
        program.call(300)
    with pytest.raises(ValueError, match=r"is float64\[\]"):
        program.call(2.5)


def test_program_inside_of_a_jax_program_is_an_error(shared: Any) -> None:
    with pytest.raises(TypeError, match=r"call it outside of jax\.jit"):
        jax.jit(shared.call)(F3)


def test_names_of_the_package_are_there_and_others_are_not() -> None:
    for name in hostcall_mlir.__all__:
        assert getattr(hostcall_mlir, name) is not None
    attribute: Callable[[], Any] = lambda: hostcall_mlir.nothing  # noqa: E731
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        attribute()


def test_without_jax_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["jax"] = None
import hostcall_mlir
try:
    hostcall_mlir.load
except ImportError as error:
    print(error)
"""
    said = run_python(code, PYTHONPATH=str(ROOT / "mlir"))
    assert_says(said, "hostcall_mlir.load needs jax", "pip install 'hostcall[jax]'")


# What the function does, what is declared of it, and what the error says.
ERRORS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "exception": (raising(KeyError("no such thing")), {}, "KeyError: 'no such thing'"),
    "dtype": (
        lambda x: x.astype(np.int16),
        {},
        f"0-th value returned by {FUNCTIONS}:triple is int16, but expects float",
    ),
    "shape": (lambda x: np.zeros(7, x.dtype), {}, "has shape (7,), but its declared shape is (3,)"),
    "no value": (lambda x: None, {}, "returns 0 values, but expects to see 1 values"),
    "two values": (functions.both, {}, "returns 2 values, but expects to see 1 values"),
    "structure": (
        functions.both,
        {"results": {"dict": {"a": 0}}},
        "a dict of the keys ['a'] is expected",
    ),
    "out": (lambda x, out: x + 1, {"out": True}, "returns a value that is not `out`"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_is_the_same_partitioned_or_not_and_names_the_line(name: str, loaded: Any) -> None:
    function, declared, text = ERRORS[name]
    program = loaded(make(with_call("triple"), of_callbacks=declared), callbacks=given(function))
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError) as raised:
            program.call(F3)
        assert text in str(raised.value)
        assert str(raised.value).count("called at model.py:10") == 1
        assert "hostcall_mlir" not in str(raised.value)
        if name == "exception":
            assert repr(raised.value.__cause__) == "KeyError('no such thing')"
            assert hostcall_mlir.last_error(raised.value) is raised.value.__cause__


def test_call_that_takes_too_long_ends(loaded: Any) -> None:
    made = make(with_call("triple"), of_callbacks={"timeout": 0.05})
    released = threading.Event()
    program = loaded(made, callbacks=given(lambda x: released.wait()))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"within its timeout of 0\.05 s"):
        program.call(F3)
    released.set()


def test_interrupt_in_a_callback_comes_out_as_it_is(loaded: Any) -> None:
    program = loaded(make(with_call("triple")), callbacks=given(raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        program.call(F3)


def test_callbacks_live_as_long_as_the_program(loaded: Any) -> None:
    function: Any = lambda x: x  # noqa: E731
    fate = Fate(function)
    gc.collect()
    before = prepared().size()
    program: Any = loaded(make(TRIPLE), callbacks=given(function))
    del function
    gc.collect()
    np.testing.assert_array_equal(program.call(F3), F3)
    del program
    fate.assert_goes()
    assert prepared().size() == before


def test_device_that_is_none_is_told(tmp_path: Path) -> None:
    device: Any = "cpu"
    with pytest.raises(TypeError, match=r"device is 'cpu', and has to be one of jax\.devices"):
        load(make(TRIPLE), tmp_path, device=device)


def test_partitioned_program_without_a_cpu_beside_the_device_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hostcall_mlir import loading

    def no_backend(**_: Any) -> Any:
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(loading, "_WITH_HOST_CALLS", ())
    monkeypatch.setattr(jax, "local_devices", no_backend)
    with pytest.raises(hostcall_mlir.ProgramError, match="JAX_PLATFORMS=cpu,cpu"):
        load(make(TRIPLE), tmp_path, partitioned=True)


def test_what_xla_cannot_compile_is_an_error(loaded: Any) -> None:
    text = """
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @nobody(%x) {api_version = 4 : i32, backend_config = {}}
    : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
"""
    with pytest.raises(hostcall_mlir.ProgramError, match="XLA cannot compile the program for"):
        loaded(make(text))


COUNTER = f"""
func.func public @main(%x: tensor<f32>, %v: tensor<f32>, %w: tensor<2xi64>)
    -> (tensor<f32>, tensor<f32>) {{
  %0 = stablehlo.add %v, %x : tensor<f32>
  %1 = {call("plus", "(tensor<f32>, tensor<f32>) -> tensor<f32>", "%0, %x", effect=True)}
  return %1, %0 : tensor<f32>, tensor<f32>
}}
"""


def counting() -> Any:
    variables: dict[str, np.ndarray] = {"v": np.array(10, np.float32), "w": np.arange(2)}
    return make(COUNTER, variables=variables, assigns=["v"])


@pytest.fixture
def counter(loaded: Any) -> Any:
    return loaded(counting())


def test_variables_are_read_and_assigned(counter: Any) -> None:
    assert counter.call(np.float32(1)) == 12
    assert counter.variables["v"] == 11
    counter.variables["v"] = np.float32(100)
    assert counter.call(np.float32(2)) == 104
    assert counter.variables["v"] == 102
    np.testing.assert_array_equal(counter.variables["w"], [0, 1])
    assert counter.variables["w"].dtype == np.int64


@pytest.mark.parametrize("name", sorted(custom_calls.ELEMENTS))
def test_variables_of_every_dtype(name: str, tmp_path: Path) -> None:
    scalar = f"tensor<{custom_calls.ELEMENTS[name]}>"
    type_ = scalar.replace("<", "<2x", 1)
    text = f"func.func public @main(%a: {type_}, %b: {scalar}) -> {type_} {{ return %a : {type_} }}"
    dtype = manifests.dtype_of(name)
    # `file` is also a parameter of the function that writes them.
    values = {"a/b:0": np.array([1, 2]).astype(dtype), "file": np.ones((), dtype)}
    program = load(make(text, variables=values), tmp_path)
    found = [program.variables["a/b:0"], program.call(), program.variables["file"]]
    for result, value in zip(found, [values["a/b:0"], *values.values()], strict=True):
        np.testing.assert_array_equal(np.asarray(result), value, strict=True)


def test_variables_that_are_not_those_of_the_program_are_told(counter: Any) -> None:
    counter.variables["V"] = np.float32(100)
    with pytest.raises(ValueError, match=r"predict has no variables \['V'\]: it has \['v', 'w'\]"):
        counter.call(np.float32(1))
    del counter.variables["V"]
    counter.variables["v"] = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match=r"variable 'v' of predict is float32\[2\]"):
        counter.call(np.float32(1))
    del counter.variables["v"]
    with pytest.raises(ValueError, match=r"have no values any more: \['v'\]"):
        counter.call(np.float32(1))


def test_failing_call_assigns_nothing_and_leaves_the_program_sound(loaded: Any) -> None:
    def fails_once(x: Any, y: Any) -> Any:
        calls.append(x)
        if len(calls) == 1:
            raise KeyError("first")
        return x + y

    calls: list[Any] = []
    program = loaded(counting(), callbacks=given(fails_once, "plus"))
    with pytest.raises(jax.errors.JaxRuntimeError):
        program.call(np.float32(1))
    assert program.variables["v"] == 10
    assert program.call(np.float32(1)) == 12


def test_threads_call_one_program(counter: Any) -> None:
    wrong: list[Any] = []

    def work(number: float) -> None:
        for _ in range(30):
            result = float(counter.call(np.float32(number)))
            # What it began with was some sum of what the threads add: a whole number.
            if result - 2 * number < 10 or result % 1:
                wrong.append(result)

    in_threads(3, lambda number: work(2.0**number))
    assert wrong == []


def test_callback_may_call_the_program_itself(loaded: Any) -> None:
    def descend(x: Any) -> Any:
        return np.float32(0) if x <= 0 else np.float32(x + float(program.call(np.float32(x - 1))))

    program = loaded(make(with_call("triple", "tensor<f32>")), callbacks=given(descend))
    assert program.call(np.float32(4)) == 10


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["manifest.json", "program.mlir", "variables.npz"])
def test_files_of_somebody_else_are_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"format": 3, "name": "a web page"}')
    before = files_in(tmp_path)
    with pytest.raises(
        FileExistsError, match=f"{name} would be replaced, and belongs to no program"
    ) as error:
        make(with_call("triple")).save(tmp_path)
    assert "Save into another directory, or remove it" in str(error.value)
    assert files_in(tmp_path) == before


def test_program_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(with_call("triple")).save(tmp_path)
    before = files_in(tmp_path)
    write = Path.write_bytes

    def full(path: Path, data: Any) -> int:
        if path.name == "manifest.json":
            raise OSError(28, os.strerror(28), str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        counting().save(tmp_path)
    assert files_in(tmp_path) == before
    program = hostcall_mlir.load(tmp_path)
    np.testing.assert_array_equal(program.call(F3), 3 * F3)


def test_program_replaces_one_with_more_files_and_leaves_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    counting().save(tmp_path)
    assert "variables.npz" in files_in(tmp_path)
    made = make(with_call("triple"))
    made.save(tmp_path)
    left = {"manifest.json", "notes.txt", "program.mlir", "program.stablehlo"}
    assert {*files_in(tmp_path)} == left
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert files.read(tmp_path).manifest.inputs == made.manifest.inputs


def test_program_has_a_short_text() -> None:
    assert repr(make(with_call("triple"))) == "<Program predict(x0: float32[3])>"

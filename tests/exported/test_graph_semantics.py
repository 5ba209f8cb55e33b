"""Exported programs have graph mode's values and errors, wherever they run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall_mlir
from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.passes import pipeline, value_errors
from tests.support.exported import across, failing, user_code
from tests.support.exported.exported import F3, I, X
from tests.support.exported.failing import FAILING, Failing
from tests.support.helpers import (
    assert_same,
    assert_says,
    eagerly,
    failure,
    jitted,
    plain,
    to_numpy,
)
from tests.support.stress.processes import Worker
from tests.support.versions import reads_programs_of_jax

MODES = [eagerly, plain, jitted]


@pytest.fixture(autouse=True)
def _nothing_is_seen() -> Iterator[None]:
    user_code.seen.clear()
    yield
    hostcall.configure(semantics="graph", functions="taken")


def custom_calls_in(root: Any) -> set[str]:
    return {*filter(None, map(custom_calls.target_of, custom_calls.walk(root)))}


@pytest.mark.parametrize("name", FAILING)
def test_errors_in_tensorflow(name: str, tmp_path: Path) -> None:
    case = FAILING[name]
    raised = failure(plain(case.function), *map(tf.constant, case.bad))
    expected = to_numpy(plain(case.function)(*map(tf.constant, case.good)))
    hostcall.export(case.function, *case.specs).save(tmp_path)
    loaded = hostcall.load(tmp_path)
    for mode in MODES:
        function = mode(loaded)
        for _ in range(2):
            assert_same(to_numpy(function(*case.good)), expected)
            user_code.seen.clear()
            error = failure(function, *case.bad)
            assert type(error) is type(raised)
            assert_says(error.message, case.op, f" at {case.place})")
            assert len(user_code.seen) == case.notes


@reads_programs_of_jax
@pytest.mark.parametrize("name", FAILING)
def test_errors_without_tensorflow(name: str, tmp_path: Path, worker: Worker) -> None:
    case = FAILING[name]
    folder = save(case, tmp_path)
    for partitioned in (False, True):
        worker.run(across.check_failing, str(folder), partitioned)


def save(case: Failing, folder: Path) -> Path:
    hostcall.export(case.function, *case.specs).save(folder / "program")
    returned = tf.nest.flatten(to_numpy(plain(case.function)(*map(tf.constant, case.good))))
    arrays: dict[str, Any] = {f"in_{number}": value for number, value in enumerate(case.good)}
    arrays |= {f"bad_{number}": value for number, value in enumerate(case.bad)}
    arrays |= {f"out_{number}": value for number, value in enumerate(returned)}
    says = np.array([case.op, f" at {case.place})"])
    np.savez(folder / "expected.npz", says=says, notes=case.notes, **arrays)
    return folder


def test_an_error_comes_before_variables_are_assigned(tmp_path: Path) -> None:
    steps = failing.Steps()
    hostcall.export(steps.step, variables="inputs").save(tmp_path)
    bad, good = np.int32(7), np.int32(2)
    loaded, program = hostcall.load(tmp_path), hostcall_mlir.load(tmp_path)
    for mode in MODES:
        function = mode(loaded.__call__)
        loaded.variables[0].assign(0)
        for i in (good, bad, good, bad):
            if i == bad:
                failure(function, X, i)
            else:
                function(X, i)
        assert int(loaded.variables[0]) == 2
    for i in (good, bad, good):
        if i == bad:
            with pytest.raises(Exception, match="INVALID_ARGUMENT: indices"):
                program(X, i)
        else:
            program(X, i)
    assert int(program.variables["count"]) == 2


def test_a_program_comes_between_the_calls_around_it(tmp_path: Path) -> None:
    """Its error keeps later calls of Python from running, although it makes no calls itself."""
    hostcall.configure(functions="all")
    hostcall.export(lambda x, i: tf.gather(x, i), F3, I).save(tmp_path)
    loaded = hostcall.load(tmp_path)
    assert not loaded.manifest.callbacks

    def around(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        failing.note(x)
        y = loaded(x, i)
        failing.note(x)
        return y

    function = jitted(around)
    assert function(X, np.int32(1)) == X[1]
    assert len(user_code.seen) == 2
    failure(function, X, np.int32(3))
    assert len(user_code.seen) == 3


VALUES = np.array([2.0, np.nan, -0.5], np.float32)


def test_values(tmp_path: Path) -> None:
    expected = to_numpy(plain(failing.of_values)(tf.constant(VALUES)))
    hostcall.export(failing.of_values, F3).save(tmp_path)
    loaded = hostcall.load(tmp_path)
    for mode in MODES:
        assert_same(to_numpy(mode(loaded)(VALUES)), expected)
    for partitioned in (False, True):
        program = hostcall_mlir.load(tmp_path, partitioned=partitioned)
        assert_same({k: np.asarray(v) for k, v in program(VALUES).items()}, expected)


@pytest.mark.parametrize("chosen", [{"semantics": "xla"}, {}])
def test_what_stays_as_xla_has_it(chosen: dict[str, str], tmp_path: Path) -> None:
    """By the user's choice; and in functions that call no Python, as long as they are compiled."""
    hostcall.configure(**chosen)  # type: ignore[arg-type]
    call = failing.pure if chosen else tf.identity

    @tf.function(jit_compile=True)
    def function(x: tf.Tensor, i: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (
            call(x),
            tf.gather(x, i),
            tf.cast(x, tf.int32),
            tf.random.stateless_normal([2], [1, 2]),
        )

    program = hostcall.export(function, F3, I)
    assert custom_calls_in(program.module()) == ({"hostcall"} if chosen else set())
    program.save(tmp_path)
    arguments = (np.array([1.0, np.nan, 1e30], np.float32), np.int32(9))
    assert_same(to_numpy(hostcall.load(tmp_path)(*arguments)), to_numpy(function(*arguments)))


def test_all_functions_have_errors_if_the_user_says_so(tmp_path: Path) -> None:
    def of_many(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, i // tf.range(1, 6000))

    hostcall.configure(functions="all")
    program = hostcall.export(of_many, F3, I)
    assert custom_calls_in(program.module()) == {"hostcall_any", "hostcall_raise"}
    program.save(tmp_path)
    loaded, other = hostcall.load(tmp_path), hostcall_mlir.load(tmp_path)
    assert_same(to_numpy(loaded(X, 2)), X[2 // np.arange(1, 6000)])
    assert "GatherV2 at " in failure(loaded, X, 5).message
    with pytest.raises(Exception, match="INVALID_ARGUMENT: indices"):
        other(X, np.int32(5))


@pytest.mark.parametrize("axis", [1, -1])
def test_places_along_a_dimension_are_not_looked_at(axis: int) -> None:
    """They are less than its size, though the value has more elements."""
    hostcall.configure(functions="all")
    values, x = tf.range(4.0), tf.TensorSpec([50, 4])
    program = hostcall.export(lambda x: tf.gather(values, tf.argmax(x, axis)), x)
    assert custom_calls_in(program.module()) == set()


def test_looks_at_many_values_are_not_joined() -> None:
    """What joins them is one more kernel for XLA to compile; what XLA computes becomes one."""
    hostcall.configure(functions="all")
    places, i = tf.TensorSpec([50], tf.int32), tf.TensorSpec([], tf.int32)

    def function(x: tf.Tensor, p: tf.Tensor, q: tf.Tensor, i: tf.Tensor, j: tf.Tensor) -> Any:
        return tf.gather(x, p), x[i], x[j], tf.gather(x, q)

    module = hostcall.export(function, F3, places, places, i, i).module()
    calls = [*custom_calls.walk(module)]
    (raised,) = (op for op in calls if custom_calls.target_of(op) == custom_calls.RAISE)
    made = [operand.owner.name for operand in raised.operands]
    assert made[:3] == ["stablehlo.custom_call", "stablehlo.select", "stablehlo.custom_call"]


def test_a_program_that_was_exported_in_between_keeps_what_it_has() -> None:
    """Each export of one function is as the settings were then."""
    case = FAILING["gather"]
    found = []
    for semantics in ("graph", "xla", "graph"):
        hostcall.configure(semantics=semantics)
        program = hostcall.export(case.function, *case.specs)
        found.append("hostcall_raise" in custom_calls_in(program.module()))
    assert found == [True, False, True]


def test_ops_that_a_program_cannot_have_as_graph_mode_has_them() -> None:
    def function(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return failing.pure(x), tf.linalg.inv(tf.linalg.diag(x)), tf.random.normal([2], seed=3)

    with pytest.warns(UserWarning, match="the program computes with XLA") as warned:
        hostcall.export(function, F3)
    (warning,) = (one for one in warned if "computes with XLA" in str(one.message))
    assert warning.filename == __file__
    said = str(warning.message)
    place = f"{__file__}:{function.__code__.co_firstlineno + 1}"
    assert_says(said, f"(MatrixInverse) at {place}: XLA raises no error for singular matrices")
    assert_says(said, f"(RandomStandardNormal) at {place}: XLA draws", 'semantics="xla"')


def test_a_program_within_a_program(tmp_path: Path) -> None:
    hostcall.configure(functions="all")
    hostcall.export(lambda x, i: tf.gather(x, i), F3, I).save(tmp_path / "inner")
    inner = hostcall.load(tmp_path / "inner")
    hostcall.export(lambda x, i: inner(x, 4 // i), F3, I).save(tmp_path / "outer")
    outer, other = hostcall.load(tmp_path / "outer"), hostcall_mlir.load(tmp_path / "outer")
    assert outer(X, 2) == other(X, np.int32(2)) == X[2]
    for i, said in ((0, "Integer division by zero"), (1, "indices are not all in")):
        assert said in failure(outer, X, i).message
        with pytest.raises(Exception, match=f"INVALID_ARGUMENT: {said}"):
            other(X, np.int32(i))


def looked_up_in_loop(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    for j in tf.range(3):
        x += tf.reduce_sum(tf.gather(x, (i + j) // tf.range(1, 6000)))
    return x


@pytest.mark.parametrize("function", [failing.of_many, looked_up_in_loop])
def test_devices_without_host_calls_raise_nothing(function: Any) -> None:
    """As TensorFlow's own kernels there."""
    hostcall.configure(functions="all")
    program = hostcall.export(lambda x, i: function(x, i)[0], F3, I)
    module = program.module()
    assert custom_calls_in(module) == {"hostcall_any", "hostcall_raise"}
    value_errors.drop(module)
    assert module.operation.verify()
    assert custom_calls_in(module) == set()


@pytest.mark.parametrize("function", [failing.of_many, looked_up_in_loop])
def test_parts_for_a_device_call_nothing(function: Any) -> None:
    hostcall.configure(functions="all")
    module = hostcall.export(function, F3, I).module()
    pipeline.run(module, "hostcall-partition")
    for name, part in traversal.functions(module).items():
        found = custom_calls_in(part)
        assert "hostcall_raise" in found if name == "main" else not found

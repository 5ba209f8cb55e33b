"""hostcall.export and hostcall.load: what a program computes, eagerly, in graphs and compiled.

And that it computes the same in a process without TensorFlow, whole and partitioned.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

import hostcall.jax
import hostcall_mlir
from tests.support.exported import across, exported, functions, user_code
from tests.support.exported.exported import F3, I, X
from tests.support.helpers import assert_same, eagerly, jitted, plain, to_numpy, value_and_gradient
from tests.support.stress.processes import Worker
from tests.support.versions import reads_programs_of_jax

MODES = [eagerly, plain, jitted]


@pytest.fixture(autouse=True)
def _nothing_is_seen() -> None:
    user_code.seen.clear()


def export_and_load(folder: Path, function: Any, *specs: Any, **options: Any) -> Any:
    hostcall.export(function, *specs, **options).save(folder)
    return hostcall.load(folder)


@pytest.mark.parametrize("name", exported.PROGRAMS)
def test_computes_what_the_function_does(name: str, tmp_path: Path) -> None:
    function, specs, arguments = exported.PROGRAMS[name]
    expected = jitted(function)(*arguments)
    effects = [*user_code.seen]
    loaded = export_and_load(tmp_path, function, *specs)
    for mode in MODES:
        user_code.seen.clear()
        returned = mode(loaded)(*arguments)
        tf.nest.map_structure(assert_same, to_numpy(returned), to_numpy(expected))
        assert user_code.seen == effects


def test_every_dtype(tmp_path: Path) -> None:
    small = (np.int8, np.uint8, np.int16, np.uint16)
    arrays = [
        np.array([True, False]),
        *(np.array([[0, 1], [3, 100]], dtype) for dtype in small),
        *(np.array([2, 3], dtype) for dtype in (np.int32, np.uint32, np.int64, np.uint64)),
        *(np.array(1.5, dtype) for dtype in (np.float16, ml_dtypes.bfloat16, np.float32)),
        *(np.array([1.5, np.pi], dtype) for dtype in (np.float64, np.complex64, np.complex128)),
        np.zeros([0, 3], np.float32),
        np.array([1.0, -2.0], ml_dtypes.float8_e5m2),
    ]
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    loaded = export_and_load(tmp_path, exported.several_dtypes, *specs)
    for mode in MODES:
        assert_same(to_numpy(mode(loaded)(*arrays)), arrays)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_integers_of_four_bits(dtype: Any, tmp_path: Path) -> None:
    arrays = [np.array(a, np.int8).astype(dtype) for a in ([1, -2, 7], 5, [])]
    variable = tf.Variable(arrays[0], name="v")
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]

    def function(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return [tf.identity(variable), *exported.several_dtypes(*tensors)]

    loaded = export_and_load(tmp_path, function, *specs, variables="inputs")
    for mode in MODES:
        assert_same(to_numpy(mode(loaded)(*arrays)), [arrays[0], *arrays])


def test_constants_of_every_dtype(tmp_path: Path) -> None:
    dtypes = [np.bool_, np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.complex64]
    arrays = [np.array([[1, 0, 2]], dtype) for dtype in dtypes] + [np.zeros([2, 0], np.float32)]
    kept = [tf.constant(array) for array in arrays]
    loaded = export_and_load(tmp_path, lambda: [tf.identity(value) for value in kept])
    assert_same(to_numpy(loaded()), arrays)


def test_functions_of_libraries(tmp_path: Path) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        for ufunc in (np.tanh, scipy.special.expit, np.cbrt):
            x = tf.ensure_shape(tf.numpy_function(ufunc, [x], tf.float32), [3])
        return x

    loaded = export_and_load(tmp_path, function, F3)
    names = {callback.name for callback in loaded.manifest.callbacks}
    assert names == {"numpy:tanh", "scipy.special:expit", "numpy:cbrt"}
    np.testing.assert_array_equal(loaded(X), np.cbrt(scipy.special.expit(np.tanh(X))))


lent = hostcall.callback(user_code.negated, result=lambda x: x, out=True, borrow=True)


def test_what_is_declared_holds(tmp_path: Path) -> None:
    timed = hostcall.callback(
        user_code.half, result=lambda x: x, timeout=60, memo=4, stateful=False, concurrent=True
    )
    loaded = export_and_load(tmp_path, lambda x: lent(x) + timed(x), F3)
    entries = {callback.name.rpartition(":")[2]: callback for callback in loaded.manifest.callbacks}
    assert entries["negated"].out
    assert entries["negated"].borrow
    assert (entries["half"].timeout, entries["half"].concurrent) == (60, True)
    for mode in MODES:
        np.testing.assert_array_equal(mode(loaded)(X), -X + X * np.float32(0.5))


def test_a_given_name(tmp_path: Path) -> None:
    named = hostcall.callback(lambda x: x + np.float32(1), result=lambda x: x, name="add one")
    with pytest.raises(ValueError, match="its name 'add one' has spaces or brackets in it"):
        hostcall.export(named, F3)
    named = hostcall.callback(lambda x: x + np.float32(1), result=lambda x: x, name="add-one")
    hostcall.export(jitted(lambda x: named(x)), F3).save(tmp_path)
    loaded = hostcall.load(tmp_path, callbacks={"add-one": lambda x: x + np.float32(10)})
    np.testing.assert_array_equal(loaded(X), X + 10)


def test_a_py_function_is_given_tensors_of_several_dtypes(tmp_path: Path) -> None:
    def function(x: tf.Tensor, n: tf.Tensor) -> Any:
        doubled = [tf.py_function(exported.doubled_tensor, [v], v.dtype) for v in (x, n)]
        both = tf.py_function(exported.two_tensors, [x, n], [tf.float32, tf.int32])
        for value, like in zip([*doubled, *both], [x, n] * 2, strict=True):
            value.set_shape(like.shape)
        return doubled, both

    loaded = export_and_load(tmp_path, function, F3, I)
    assert {callback.kind for callback in loaded.manifest.callbacks} == {"eager"}
    for mode in MODES:
        returned = to_numpy(mode(loaded)(X, 3))
        expected = ([X + X, np.int32(6)], [X + 3, np.int32(2)])
        tf.nest.map_structure(np.testing.assert_array_equal, returned, expected)


def test_calls_keep_their_order_among_others(tmp_path: Path) -> None:
    loaded = export_and_load(tmp_path, exported.nothing, F3)

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for factor in (1.0, 3.0):
            tf.numpy_function(user_code.note, [factor * x], [])
            loaded((factor + 1.0) * x)
        return x

    program(X)
    np.testing.assert_allclose(user_code.seen, [3.5, 7.0, 10.5, 14.0])


def test_variables_as_constants_have_the_values_of_the_export(tmp_path: Path) -> None:
    model = exported.Model()
    program = hostcall.export(model.predict, F3)
    model.scale.assign([0.0, 0.0, 0.0])
    program.save(tmp_path)
    loaded = hostcall.load(tmp_path)
    assert not loaded.variables
    np.testing.assert_array_equal(loaded(X), 0.5 * (1.0 + 4.0 + 1.5))


def test_variables_as_inputs_can_be_set_and_are_assigned(tmp_path: Path) -> None:
    model, twin = exported.Model(), exported.Model()
    hostcall.export(model.step, F3, variables="inputs").save(tmp_path)
    for mode in MODES:
        loaded = hostcall.load(tmp_path)
        twin.scale.assign(model.scale)
        twin.count.assign(0)
        for _ in range(3):
            returned, expected = mode(loaded)(X), twin.step(X)
            np.testing.assert_allclose(returned["loss"], expected["loss"], rtol=1e-6)
            np.testing.assert_array_equal(returned["count"], expected["count"])
        variables = {variable.name: variable for variable in loaded.variables}
        np.testing.assert_allclose(variables["scale:0"], twin.scale, rtol=1e-6)
        variables["scale:0"].assign([0.0, 0.0, 0.0])
        np.testing.assert_array_equal(mode(loaded)(X)["loss"], 0.0)


def test_a_keras_model(tmp_path: Path) -> None:
    import keras

    half = hostcall.callback(user_code.half, result=lambda x: x)
    model = keras.Sequential(
        [keras.Input([3]), keras.layers.Dense(4), keras.layers.Lambda(lambda x: half(x))]
    )
    loaded = export_and_load(tmp_path, model, tf.TensorSpec([2, 3], tf.float32))
    x = np.stack([X, -X])
    np.testing.assert_allclose(loaded(x), model(x), rtol=1e-6)


def test_bounded_results_are_for_other_processes(tmp_path: Path) -> None:
    bounded = hostcall.BoundedSpec([3], tf.float32, [0])
    unique = hostcall.callback(user_code.unique, result=bounded)
    program = hostcall.export(jitted(lambda x: unique(x) * 2.0), F3)
    (result,) = program.manifest.outputs_of("result")
    assert (result.spec.shape, result.spec.bounded) == ((3,), (0,))
    assert len(program.manifest.outputs_of("size")) == 1
    program.save(tmp_path)
    with pytest.raises(ValueError, match="XlaCallModule, refuses these"):
        hostcall.load(tmp_path)


def jax_function(x: Any) -> Any:
    x = hostcall.jax.call(user_code.sine, x, x)
    hostcall.jax.call(user_code.note, None, x, ordered=True)
    pair = user_code.Pair(x, x)
    named = hostcall.jax.call(lambda v: v, x, x, name="same")
    returned = hostcall.callback(user_code.pairs, result=user_code.Pair(F3, F3))(named)
    return hostcall.jax.call(user_code.second, x, {"pair": pair, "more": [returned.first]})


@reads_programs_of_jax
def test_calls_of_jax(tmp_path: Path) -> None:
    converted = hostcall.jax.to_tf(jax_function)
    expected, effects = converted(X), [*user_code.seen]
    hostcall.export(converted, F3).save(tmp_path)
    loaded = hostcall.load(tmp_path, callbacks={"same": lambda v: v})
    for mode in MODES:
        user_code.seen.clear()
        np.testing.assert_array_equal(mode(loaded)(X), expected)
        assert user_code.seen == effects
    in_jax = hostcall_mlir.load(tmp_path, callbacks={"same": lambda v: v})
    np.testing.assert_array_equal(in_jax.call(X), expected)


@reads_programs_of_jax
def test_callbacks_of_jax_itself() -> None:
    converted = hostcall.jax.to_tf(lambda x: jax.pure_callback(user_code.sine, x, x))
    with pytest.raises(ValueError, match=r"not with JAX's own callbacks") as caught:
        hostcall.export(converted, F3)
    assert "jax.pure_callback of sine" in str(caught.value)


SMALL = X / 10


def in_a_branch(x: Any) -> Any:
    return {"y": tf.cond(x[0] > 9, lambda: x, lambda: tf.exp(tf.exp(x))), "none": None, "x": x}


def in_a_loop(x: Any) -> Any:
    y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, tf.exp(y)), [0, x])[1]
    return {"y": y, "none": None, "x": x}


@pytest.mark.parametrize("function", [in_a_branch, in_a_loop])
def test_what_gradients_need_is_no_result(function: Any, tmp_path: Path) -> None:
    # TensorFlow appends it to the outputs of the concrete function.
    concrete = tf.function(function).get_concrete_function(tf.TensorSpec([3], tf.float32))
    x = tf.constant(SMALL)
    y, slope = value_and_gradient(lambda x: concrete(x)["y"], x)
    np.testing.assert_allclose(slope, y * np.exp(SMALL), rtol=1e-6)
    hostcall.export(concrete).save(tmp_path)
    results = hostcall_mlir.load(tmp_path).call(SMALL)
    assert results["none"] is None
    np.testing.assert_allclose(results["y"], np.exp(np.exp(SMALL)), rtol=1e-6)
    np.testing.assert_array_equal(results["x"], SMALL)


class Scaled(tf.Module):
    """Methods that TensorFlow traces for any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def signed(self, x: tf.Tensor) -> tf.Tensor:
        return call_of_its_shape(x) * self.factor

    @tf.function(autograph=False)
    def traced(self, x: tf.Tensor) -> tf.Tensor:
        return call_of_its_shape(x) * self.factor


def call_of_its_shape(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(user_code.half, [x], tf.TensorSpec(x.shape, x.dtype))


@pytest.mark.parametrize("name", ["signed", "traced"])
def test_sizes_are_those_of_the_specs_where_a_wider_trace_is_there(
    name: str, tmp_path: Path
) -> None:
    scaled = Scaled()  # of which the function does not take hold
    function = getattr(scaled, name)
    function.get_concrete_function(tf.TensorSpec([None], tf.float32))
    loaded = export_and_load(tmp_path, function, F3)
    assert loaded.manifest.inputs[0].spec.shape == (3,)
    np.testing.assert_array_equal(loaded(X), X)


@reads_programs_of_jax
def test_autograph_leaves_export_and_load_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tf.function
    def program(x: tf.Tensor) -> tf.Tensor:
        return export_and_load(tmp_path, exported.straight, F3)(x)

    np.testing.assert_allclose(program(X), exported.straight(X), rtol=1e-6)
    assert "AutoGraph" not in caplog.text


scaled = hostcall.callback(functions.scaled, result=lambda x: x)


def model(x: Any) -> Any:
    first = scaled(x) + scaled(x, factor=3.0, how="down") + scaled(x, shift=x)
    return first + scaled(x, shift=x, how="down") + scaled(x, how="down", factor=3.0)


def test_the_functions_are_called_with_the_same_keywords(tmp_path: Path) -> None:
    program = hostcall.export(model, F3)
    program.save(tmp_path)
    assert [(one.keywords, one.fixed, len(one.calls)) for one in program.manifest.callbacks] == [
        ((), {}, 1),
        ((), {"factor": "3.0", "how": "'down'"}, 2),
        (("shift",), {}, 1),
        (("shift",), {"how": "'down'"}, 1),
    ]
    np.testing.assert_array_equal(hostcall.load(tmp_path)(X), 12.0 * X)
    np.testing.assert_array_equal(hostcall_mlir.load(tmp_path).call(X), 12.0 * X)


def test_a_function_that_is_given_has_to_take_the_keywords(tmp_path: Path) -> None:
    hostcall.export(lambda x: scaled(x, shift=x, how="down"), F3).save(tmp_path)
    name = f"{functions.__name__}:scaled"
    given = {name: lambda x, shift, how: x - shift}
    np.testing.assert_array_equal(hostcall.load(tmp_path, callbacks=given)(X), 0.0 * X)
    for load in (hostcall.load, hostcall_mlir.load):
        with pytest.raises(ValueError, match="and shift=… and how=…, and the function") as caught:
            load(tmp_path, callbacks={name: lambda x: x})
        assert "with 1 argument and shift=… and how=…" in str(caught.value)


@pytest.mark.parametrize("value", [len, float("nan"), [object()]])
def test_values_that_a_program_cannot_hold(value: Any) -> None:
    with pytest.raises(ValueError, match="a program can only hold None, bools, numbers") as caught:
        hostcall.export(lambda x: scaled(x, how=value), F3)
    assert f"how={value!r} is passed by keyword" in str(caught.value)


bounded = hostcall.callback(
    user_code.unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype, [0])
)
narrow = hostcall.callback(user_code.half_of_int4, result=lambda x: x, stateful=False)


def int4_inside(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(narrow(tf.cast(x, "int4")), tf.int32)


def less_than_a_byte(x: Any) -> Any:
    """Numbers that only JAX has, in a call and beside it."""
    for dtype in (jnp.int2, jnp.uint2, jnp.int4, jnp.uint4, jnp.float4_e2m1fn):
        small = jnp.abs(x).astype(dtype)
        called = hostcall.jax.call(user_code.flipped, small, small)
        x = x + called.astype(x.dtype) * 2 + small.astype(x.dtype)
    return x


ALL_PROGRAMS = exported.PROGRAMS | {
    "bounded": (lambda x: (bounded(tf.cos(x)), tf.reduce_sum(bounded(x))), (F3,), (X * X[::-1],)),
    "lent": (lambda x: lent(x) * 2.0, (F3,), (X,)),
    "int4": (int4_inside, (F3,), (X * 3,)),
    "less_than_a_byte": (
        hostcall.jax.to_tf(less_than_a_byte),
        (F3,),
        (np.array([0, 1, -1], np.float32),),
    ),
    "doubles": (
        exported.several_dtypes,
        (tf.TensorSpec([2], tf.float64), tf.TensorSpec([], tf.int64)),
        (np.array([np.pi, 1e300]), np.array(2**40)),
    ),
}


def save(folder: Path, name: str) -> Path:
    """The program and what it has to compute, in a directory."""
    function, specs, arguments = ALL_PROGRAMS[name]
    compiled = jitted(function)
    hostcall.export(compiled, *specs).save(folder / name / "program")
    user_code.seen.clear()
    returned = tf.nest.flatten(to_numpy(compiled(*arguments)))
    results = [value for value in returned if value.dtype != object]  # None has no array
    arrays = {f"in_{number}": value for number, value in enumerate(arguments)}
    arrays |= {f"out_{number}": value for number, value in enumerate(results)}
    np.savez(folder / name / "expected.npz", seen=np.array(user_code.seen), **arrays)
    return folder / name


@reads_programs_of_jax
@pytest.mark.parametrize("name", ALL_PROGRAMS)
def test_the_same_without_tensorflow(name: str, tmp_path: Path, worker: Worker) -> None:
    folder = save(tmp_path, name)
    for partitioned in (False, True):
        worker.run(across.check, str(folder), partitioned)

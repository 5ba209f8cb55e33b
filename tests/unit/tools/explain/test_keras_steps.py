"""hostcall.explain of Keras models: the steps of fit and predict."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall

X, Y = np.zeros((5, 4)), np.zeros((5, 2))
calls: list[str] = []


def noise(x: np.ndarray) -> np.ndarray:
    calls.append("noise")
    return x


class Noise(keras.layers.Layer):
    def compute_output_shape(self, shape: Any) -> Any:
        return shape

    def call(self, x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(noise, [x], tf.float32), x.shape)


def model(*, built: bool = True, **compiled: Any) -> Any:
    given = [keras.Input((4,))] if built else []
    made = keras.Sequential([*given, Noise(), keras.layers.Dense(2)], name="noisy")
    if compiled:
        made.compile("adam", "mse", metrics=["mae"], **compiled)
    return made


def test_the_step_of_fit() -> None:
    calls.clear()
    explanation = hostcall.explain(model(jit_compile=True), X, Y)
    assert explanation.name == "fit of noisy, for one batch"
    assert explanation.headline == "one compiled program with 1 script op in it"
    assert [op.callback for op in explanation.script_ops] == ["noise"]
    assert explanation.script_ops[0].operands[0].shape == "(5, 4)"
    assert explanation.script_ops[0].operands[0].dtype == "float32"
    assert calls == []


def test_the_step_of_predict() -> None:
    explanation = hostcall.explain(model(jit_compile=True), X)
    assert explanation.name == "predict of noisy, for one batch"
    assert "one compiled program" in explanation.headline


@pytest.mark.parametrize("built", [True, False])
def test_models_that_are_not_compiled_by_xla(built: bool) -> None:
    made = model(built=built, jit_compile=False)
    for batch in ((X,), (X, Y)):
        assert "not compiled" in hostcall.explain(made, *batch).headline
    assert "not compiled" in hostcall.explain(model(built=built), X).headline


def test_specs_names_and_weights() -> None:
    made = model(jit_compile=True)
    x, y = tf.TensorSpec([None, 4]), tf.TensorSpec([None, 2])
    (op,) = hostcall.explain(made, x, y=y, sample_weight=tf.TensorSpec([None])).script_ops
    assert op.operands[0].shape == "(None, 4)"


def test_a_model_can_be_trained_after_it_was_explained() -> None:
    made = model(built=False, jit_compile=True)
    hostcall.explain(made, X, Y)
    made.fit(X, Y, verbose=0)


def test_without_a_batch_or_compile() -> None:
    with pytest.raises(TypeError, match=r"hostcall\.explain\(model, x, y\) for the step of fit"):
        hostcall.explain(model())
    with pytest.raises(TypeError, match=r"hostcall\.explain\(model, x, y\) for the step of fit"):
        hostcall.explain(model(), X, z=X)
    with pytest.raises(TypeError, match=r"noisy is not compiled.*model\.compile"):
        hostcall.explain(model(), X, Y)


def test_a_keras_without_the_name_that_builds_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = next(kind for kind in keras.Model.__mro__ if "_symbolic_build" in vars(kind))
    monkeypatch.delattr(owner, "_symbolic_build")
    made = model(jit_compile=True)
    with pytest.raises(TypeError, match=r"no _symbolic_build.*model\.train_on_batch"):
        hostcall.explain(made, X, Y)
    made.train_on_batch(X, Y)
    assert "one compiled program" in hostcall.explain(made, X, Y).headline

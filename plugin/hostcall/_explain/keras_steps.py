"""The functions that a Keras model runs for one batch, for `hostcall.explain`."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

_NAMES = ("x", "y", "sample_weight")

_NOT_COMPILED = (
    "hostcall.explain: {model} is not compiled, so that there is no step of fit to explain. Call "
    "model.compile(...) first, or leave out y: hostcall.explain(model, x) is about predict."
)
_NO_BATCH = (
    "hostcall.explain: a Keras model is explained for a batch: hostcall.explain(model, x, y) the "
    "step of fit, hostcall.explain(model, x) that of predict, with arrays or tf.TensorSpecs."
)


# Keras's private name for making the variables of a step; Keras 3 has it.
_BUILD = "_symbolic_build"

_CANNOT_BUILD = (
    "hostcall.explain: this version of Keras has no {name}, by which the variables of a step are "
    "made. Train the model on one batch first, model.train_on_batch(x, y), and explain it then."
)


def is_model(value: object) -> bool:
    """Whether a value is a Keras model."""
    model = getattr(sys.modules.get("keras"), "Model", None)
    return model is not None and isinstance(value, model)


def step_of(model: Any, batch: tuple[Any, ...], **by_name: Any) -> tuple[Any, str]:
    """The concrete function that a model runs for a batch, and what the user calls it.

    Args:
      model: the model.
      batch: x for the step of `predict`; x, y and perhaps sample weights for that of `fit`.
      **by_name: the same by keyword, as `fit` has them.

    Raises:
      TypeError: when there is no batch, the model would have to be compiled, or trained once.
    """
    batch += tuple(by_name.pop(name) for name in _NAMES[len(batch) :] if name in by_name)
    if by_name or not 1 <= len(batch) <= 3:
        raise TypeError(_NO_BATCH)
    specs = tf.nest.map_structure(_spec_of, batch)
    trains = len(specs) > 1
    if trains and not model.compiled:
        raise TypeError(_NOT_COMPILED.format(model=model.name))
    _build(model, specs)

    def fit_step(*data: Any) -> Any:
        return model.train_step(data)

    def predict_step(x: Any) -> Any:
        return model.predict_step((x,))

    step = fit_step if trains else predict_step
    compiled = tf.function(step, jit_compile=bool(model.jit_compile) or None)
    title = f"{'fit' if trains else 'predict'} of {model.name}, for one batch"
    return compiled.get_concrete_function(*specs), title


def _build(model: Any, specs: tuple[Any, ...]) -> None:
    """Makes the variables of a model, its metrics and its optimizer, as `fit` does it at first."""
    if len(specs) > 1:
        _build_step(model, specs)
    elif not model.built:
        model.build(tuple(specs[0].shape))


def _build_step(model: Any, specs: tuple[Any, ...]) -> None:
    build = getattr(model, _BUILD, None)
    if build is not None:
        build(data_batch=specs)
    elif not (model.built and model.optimizer.built):
        raise TypeError(_CANNOT_BUILD.format(name=_BUILD))


def _spec_of(value: Any) -> Any:
    """The spec of what Keras makes of an array of the user's."""
    if isinstance(value, tf.TypeSpec):
        return value
    value = value if hasattr(value, "dtype") else tf.convert_to_tensor(value)
    dtype = tf.as_dtype(value.dtype)
    if dtype.is_floating:
        dtype = tf.as_dtype(sys.modules["keras"].config.floatx())
    return tf.TensorSpec(value.shape, dtype)

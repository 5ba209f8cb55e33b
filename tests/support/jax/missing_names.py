"""hostcall.jax as it is with a JAX that lacks some of the private names that it uses."""

import concurrent.futures
import contextlib
import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import hostcall


class Without:
    """A module as it is without one name, which may be a name in a class of the module."""

    def __init__(self, real: Any, missing: str) -> None:
        self.__dict__.update(real=real, missing=missing.split("."))

    def __getattr__(self, name: str) -> Any:
        first, *rest = self.missing
        if name == first and not rest:
            raise AttributeError(name)
        found = getattr(self.real, name)
        return Without(found, ".".join(rest)) if name == first else found


@contextlib.contextmanager
def taken_away(module: str, attribute: str) -> Iterator[None]:
    """Has what is imported now see JAX without a name; JAX itself keeps it, and needs it."""
    real = importlib.import_module(module)
    package, _, name = module.rpartition(".")
    sys.modules[module] = Without(real, attribute)  # type: ignore[assignment]
    setattr(sys.modules[package], name, sys.modules[module])
    yield
    sys.modules[module] = real
    setattr(sys.modules[package], name, real)


def report(names: list[list[str]], checks: list[str]) -> None:
    """Imports hostcall.jax without some names, each a module and an attribute, and runs checks.

    Prints as JSON what comes of that.
    """
    found: dict[str, str] = {}
    with contextlib.ExitStack() as stack, warnings.catch_warnings(record=True) as said:
        for module, attribute in names:
            stack.enter_context(taken_away(module, attribute))
        warnings.simplefilter("always", RuntimeWarning)
        try:
            importlib.import_module("hostcall.jax")
        except ImportError as error:
            found["import"] = f"ImportError: {error}"
    found["warning"] = "\n".join(str(warning.message) for warning in said)
    for name in checks:
        found[name] = _outcome(CHECKS[name])
    spec = tf.TensorSpec([2], tf.float32)
    negative = hostcall.callback(lambda v: -v, result=spec)
    in_tensorflow = tf.function(lambda v: negative(v), jit_compile=True)
    found["tensorflow"] = str(in_tensorflow(tf.constant([1.0, 2.0])).numpy())
    print(json.dumps(found))  # noqa: T201


def _outcome(check: Any) -> str:
    try:
        return str(check())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _call(*args: Any, **options: Any) -> Any:
    return importlib.import_module("hostcall.jax").call(*args, **options)


def _negated(v: Any, **options: Any) -> Any:
    return _call(np.negative, v, v, **options)


def _without_tracing() -> Any:
    program = jax.jit(_negated)
    program(X)
    with jax.no_tracing(True):
        return program(X)


def _in_a_scan(pure: bool) -> Any:
    def step(carry: Any, value: Any) -> Any:
        return carry + _negated(value, pure=pure), None

    return jax.jit(lambda v: jax.lax.scan(step, np.float32(0), v)[0])(
        np.arange(3, dtype=np.float32)
    )


def _rematerialized() -> Any:
    def log(x: Any) -> Any:
        _call(np.sin, (), x, wait=False)
        return x * x

    return jax.grad(jax.checkpoint(log))(np.float32(1))


def _reduced() -> Any:
    add = lambda a, b: _call(np.add, a, a, b, pure=True)  # noqa: E731
    total = jax.jit(lambda v: jax.lax.reduce(v, np.float32(0), add, (0,)))
    return total(np.ones(2, np.float32))


def _setting_on_another_thread() -> Any:
    def look(x: Any) -> Any:
        return np.bool_(jax.config.jax_enable_x64)

    result = jax.ShapeDtypeStruct((), np.bool_)
    with concurrent.futures.ThreadPoolExecutor(1) as pool, jax.enable_x64(True):
        return bool(jax.jit(lambda v: _call(look, result, v, executor=pool))(np.float32(0)))


def _of_arrays() -> Any:
    negative = hostcall.callback(lambda v: -v, result=tf.TensorSpec([2], tf.float32))
    return negative(jnp.arange(2, dtype=jnp.float32))


def _without_arguments() -> Any:
    one = hostcall.callback(lambda: np.float32(1), result=tf.TensorSpec([], tf.float32))
    return type(jax.make_jaxpr(lambda: one() + 0)().eqns).__name__


def _to_tf(function: Any) -> Any:
    return importlib.import_module("hostcall.jax").to_tf(function)(X).numpy()


X = np.arange(2, dtype=np.float32)

# Programs, each of which needs a feature.
CHECKS: dict[str, Callable[[], Any]] = {
    "call": lambda: jax.jit(_negated)(X),
    "callback_of_arrays": _of_arrays,
    "no_tracing": _without_tracing,
    "vmap": lambda: jax.jit(jax.vmap(lambda v: _negated(v, vmap_method="sequential")))(X),
    "scan": lambda: _in_a_scan(pure=False),
    "scan_of_pure_calls": lambda: _in_a_scan(pure=True),
    "rematerialized": _rematerialized,
    "reducer": _reduced,
    "setting_on_another_thread": _setting_on_another_thread,
    "gradient": lambda: jax.grad(lambda v: _negated(v, pure=True))(1.0),
    "without_arguments": _without_arguments,
    "to_tf": lambda: _to_tf(jnp.negative),
    "jax_callback_to_tf": lambda: _to_tf(lambda v: jax.pure_callback(np.negative, v, v)),
}

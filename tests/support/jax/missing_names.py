"""hostcall.jax as it is with a JAX that lacks one of the private names that it uses."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np


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


def report(module: str, attribute: str, checks: list[str]) -> None:
    """Imports hostcall.jax without a name, and prints as JSON what comes of that and of checks."""
    import tensorflow as tf

    import hostcall

    found: dict[str, str] = {}
    with taken_away(module, attribute), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            import hostcall.jax
        except ImportError as error:
            found["import"] = f"ImportError: {error}"
    found["warning"] = "\n".join(str(warning.message) for warning in said)
    for name in checks:
        found[name] = _outcome(getattr(Checks, name))
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


class Checks:
    """Programs, each of which needs a feature."""

    @staticmethod
    def call() -> Any:
        import jax

        import hostcall.jax

        x = np.arange(2, dtype=np.float32)
        return jax.jit(lambda v: hostcall.jax.call(np.negative, v, v))(x)

    @staticmethod
    def callback_of_arrays() -> Any:
        import jax.numpy as jnp
        import tensorflow as tf

        import hostcall

        negative = hostcall.callback(lambda v: -v, result=tf.TensorSpec([2], tf.float32))
        return negative(jnp.arange(2, dtype=jnp.float32))

    @staticmethod
    def no_tracing() -> Any:
        import jax

        import hostcall.jax

        x = np.arange(2, dtype=np.float32)
        program = jax.jit(lambda v: hostcall.jax.call(np.negative, v, v))
        program(x)
        with jax.no_tracing(True):
            return program(x)

    @staticmethod
    def vmap() -> Any:
        import jax

        import hostcall.jax

        negated = lambda v: hostcall.jax.call(np.negative, v, v, vmap_method="sequential")  # noqa: E731
        return jax.jit(jax.vmap(negated))(np.arange(2, dtype=np.float32))

    @staticmethod
    def scan() -> Any:
        return _in_a_scan(pure=False)

    @staticmethod
    def scan_of_pure_calls() -> Any:
        return _in_a_scan(pure=True)

    @staticmethod
    def reducer() -> Any:
        import jax

        import hostcall.jax

        add = lambda a, b: hostcall.jax.call(np.add, a, a, b, pure=True)  # noqa: E731
        total = jax.jit(lambda v: jax.lax.reduce(v, np.float32(0), add, (0,)))
        return total(np.ones(2, np.float32))

    @staticmethod
    def setting_on_another_thread() -> Any:
        import concurrent.futures

        import jax

        import hostcall.jax

        def look(x: Any) -> Any:
            return np.bool_(jax.config.jax_enable_x64)

        result = jax.ShapeDtypeStruct((), np.bool_)
        with concurrent.futures.ThreadPoolExecutor(1) as pool, jax.enable_x64(True):
            call = jax.jit(lambda v: hostcall.jax.call(look, result, v, executor=pool))
            return bool(call(np.float32(0)))

    @staticmethod
    def gradient() -> Any:
        import jax

        import hostcall.jax

        return jax.grad(lambda v: hostcall.jax.call(np.negative, v, v, pure=True))(1.0)

    @staticmethod
    def without_arguments() -> Any:
        import jax
        import tensorflow as tf

        import hostcall

        one = hostcall.callback(lambda: np.float32(1), result=tf.TensorSpec([], tf.float32))
        return type(jax.make_jaxpr(lambda: one() + 0)().eqns).__name__

    @staticmethod
    def to_tf() -> Any:
        import jax.numpy as jnp

        import hostcall.jax

        return hostcall.jax.to_tf(jnp.negative)(np.arange(2, dtype=np.float32)).numpy()

    @staticmethod
    def jax_callback_to_tf() -> Any:
        import jax

        import hostcall.jax

        function = lambda v: jax.pure_callback(np.negative, v, v)  # noqa: E731
        return hostcall.jax.to_tf(function)(np.arange(2, dtype=np.float32)).numpy()


def _in_a_scan(pure: bool) -> Any:
    import jax

    import hostcall.jax

    def step(carry: Any, value: Any) -> Any:
        return carry + hostcall.jax.call(np.negative, value, value, pure=pure), None

    return jax.jit(lambda v: jax.lax.scan(step, np.float32(0), v)[0])(
        np.arange(3, dtype=np.float32)
    )

"""The models that are served; run with folders to write them to, and for what they compute."""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.servers import functions
from tests.support.servers.inputs import (
    CHECKED_INPUTS,
    NATIVE_INPUTS,
    PYTHON_INPUTS,
    VALUE_INPUTS,
)

VECTOR = tf.TensorSpec([4], tf.float32)
BATCH = tf.TensorSpec([None, 3], tf.float32)
ANY = tf.TensorSpec([None], tf.float32)
SCALAR = tf.TensorSpec([], tf.float32)

Body = Callable[[tf.Tensor], Any]

_KEYS = tf.range(2, dtype=tf.int64)
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(_KEYS, _KEYS), -1)


def call(function: Any, x: tf.Tensor, result: Any = None, stateful: bool = True) -> Any:
    return tf.numpy_function(function, [x], x.dtype if result is None else result, stateful)


def _loop(x: tf.Tensor) -> Any:
    def body(i: Any, y: Any) -> Any:
        y = call(functions.plus_one, y)
        y.set_shape([4])
        return i + 1, y

    return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]


def _append(x: tf.Tensor) -> Any:
    return call(functions.append, x)


def _in_order(x: tf.Tensor, append: Any = _append) -> Any:
    """Return a value that tells the order of the calls, as nothing else connects them."""
    _append(0.0 * x)
    for digit in (1.0, 2.0):
        append(digit + 0.0 * x)
    return _append(3.0 + 0.0 * x)


def _in_order_loop(x: tf.Tensor) -> Any:
    def body(i: Any) -> Any:
        _append(tf.cast(i, tf.float32) + 0.0 * x)
        return (i + 1,)

    _append(0.0 * x)
    tf.while_loop(lambda i: i < 3, body, [1])
    return _append(3.0 + 0.0 * x)


def _in_order_batches(x: tf.Tensor) -> Any:
    _append(0.0 * x[0])
    tf.vectorized_map(_append, x)
    return _append(4.0 + 0.0 * x[0])


def _printed(x: tf.Tensor) -> Any:
    tf.print("served", output_stream=sys.stderr)
    return call(functions.plus_one, x)


def _table(x: tf.Tensor) -> Any:
    tf.while_loop(lambda i: i < 3, lambda i: (TABLE.lookup(i), (i + 1,))[1], [_KEYS[0]])
    return call(functions.plus_one, x)


def _in_batches(function: Any, x: tf.Tensor) -> Any:
    return 1.0 + tf.vectorized_map(lambda row: call(function, row), x)


# By name: the body, and the spec of its input.
NATIVE: dict[str, tuple[Body, tf.TensorSpec]] = {
    "native": (lambda x: 2.0 * call(functions.plus_one, x), VECTOR),
    "sums": (lambda x: 1.0 + call(functions.sums, x), BATCH),
    "empty": (lambda x: 1.0 + call(functions.sums, x), BATCH),
    "loop": (_loop, VECTOR),
    "in_order": (_in_order, SCALAR),
    "in_order_nested": (lambda x: _in_order(x, tf.function(_append)), SCALAR),
    "in_order_loop": (_in_order_loop, SCALAR),
    "in_order_batches": (_in_order_batches, ANY),
    "printed": (_printed, VECTOR),
    "table": (_table, VECTOR),
    "scale": (lambda x: call(functions.scale, x), ANY),
    "scale_in_batches": (lambda x: _in_batches(functions.scale_batches, x), BATCH),
    "later": (lambda x: call(functions.later, x), VECTOR),
    "on_pool": (lambda x: tf.minimum(tf.numpy_function(functions.on_pool, [], tf.int64), 1), ANY),
    "root": (lambda x: call(functions.root, x), SCALAR),
    "stateless": (lambda x: call(functions.plus_one, x, stateful=False), ANY),
}
PYTHON: dict[str, tuple[Body, tf.TensorSpec]] = {
    "double": (lambda x: call(functions.double, x, VECTOR), VECTOR),
    "thrice": (lambda x: 1.0 + call(functions.thrice, x), BATCH),
    "eager": (lambda x: tf.py_function(functions.double, [x], VECTOR), VECTOR),
    "shout": (lambda x: call(functions.shout, x, tf.string), VECTOR),
    "unique": (lambda x: 1.0 + call(functions.unique, x), VECTOR),
    "both": (lambda x: call(functions.plus_one, call(functions.double, x, VECTOR)), VECTOR),
    "of_batches": (lambda x: 1.0 + call(functions.of_batches, x), VECTOR),
    "in_batches": (lambda x: _in_batches(functions.of_batches, x), BATCH),
    "on_device": (lambda x: 1.0 + call(functions.on_device, x), VECTOR),
}
TEN = tf.range(10.0)


def _integers(x: tf.Tensor) -> Any:
    return tf.cast(x, tf.int32)


def _looked_up_often(x: tf.Tensor) -> Any:
    indices = tf.cast(x[0], tf.int64) // tf.range(1, 6000, dtype=tf.int64)
    return call(functions.plus_one, x) * tf.reduce_sum(tf.gather(TEN, indices))


def _divided(x: tf.Tensor) -> Any:
    quotients = tf.cast(6, tf.int16) // tf.cast(x, tf.int16)
    return call(functions.plus_one, tf.cast(quotients, tf.float32))


def _checked_loop(x: tf.Tensor) -> Any:
    def body(i: Any, y: Any) -> Any:
        y += tf.gather(TEN, i + _integers(x[0]))
        y = call(functions.plus_one, y)
        y.set_shape([4])
        return i + 1, y

    return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]


def _checked_in_order(x: tf.Tensor) -> Any:
    for digit in (0.0, 1.0, 2.0):
        _append(digit + 0.0 * x)
    y = tf.cast(1 // _integers(x), tf.float32)
    return _append(3.0 + 0.0 * y)


def _casts(x: tf.Tensor) -> Any:
    large = tf.cast(tf.cast(x * 1e30, tf.int32), tf.float32)
    return call(functions.plus_one, tf.stack([large[0], large[1], large[2], tf.reduce_max(x[2:])]))


def _in_four_bits(function: Body, x: tf.Tensor) -> Any:
    """Let a compiled function take and return integers of four bits."""

    def wide(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(x, tf.int8), tf.float32)

    def small(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(x, tf.int8), "int4")

    compiled = tf.function(lambda x: small(function(wide(x))), jit_compile=True)
    return wide(compiled(small(x)))


def _drawn_twice(x: tf.Tensor) -> Any:
    """Return 0, as each call of a function draws the same numbers from its seeds."""
    draw = tf.function(
        lambda x: call(functions.plus_one, x) + tf.random.uniform([4], seed=5), jit_compile=True
    )
    return draw(x) - draw(x)


# Functions with graph mode's values and errors, and one to see what was called.
CHECKED: dict[str, tuple[Body, tf.TensorSpec]] = {
    "looked_up": (lambda x: call(functions.plus_one, tf.gather(TEN, _integers(x))), VECTOR),
    "looked_up_often": (_looked_up_often, VECTOR),
    "divided": (_divided, VECTOR),
    "in_loop": (_checked_loop, VECTOR),
    "before_loop": (lambda x: _loop(x + tf.gather(TEN, _integers(x[0]))), VECTOR),
    "in_order_checked": (_checked_in_order, SCALAR),
    "inverse": (
        lambda x: call(functions.plus_one, tf.linalg.diag_part(tf.linalg.inv(tf.linalg.diag(x)))),
        VECTOR,
    ),
    "by_python": (
        lambda x: call(functions.double, tf.gather(TEN, _integers(x)), VECTOR),
        VECTOR,
    ),
    "casts": (_casts, VECTOR),
    "four_bits": (lambda x: _in_four_bits(lambda x: call(functions.plus_one, x), x), VECTOR),
    "drawn_twice": (_drawn_twice, VECTOR),
    "four_bits_alone": (lambda x: _in_four_bits(lambda x: x - 3.0, x), VECTOR),
    "appended": (_append, SCALAR),
}
# These are not called where they are saved.
BAD: dict[str, tuple[Body, tf.TensorSpec]] = {
    "hoped": (lambda x: call(functions.plus_one, x, VECTOR), ANY),
    "odd": (lambda x: call(functions.odd, x), ANY),
    "refuse": (lambda x: call(functions.refuse, x), VECTOR),
    "die_once": (lambda x: call(functions.die_once, x), VECTOR),
}


class Model(tf.Module):
    def __init__(self, bodies: dict[str, tuple[Body, tf.TensorSpec]]) -> None:
        super().__init__()
        self.served: dict[str, Any] = {}
        self.table = TABLE
        for name, (body, spec) in bodies.items():
            body.__name__ = f"_{name}"  # which the server's log tells
            for compiled in (False, True):
                self.served[f"{name}_{'compiled' if compiled else 'plain'}"] = _signature(
                    body, spec, compiled
                )


class WithVariable(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(tf.zeros([4]))
        self.served = {"add": self.add}

    @tf.function(input_signature=[VECTOR])
    def add(self, x: tf.Tensor) -> Any:
        return {"result": self._added(x)}

    @tf.function(jit_compile=True)
    def _added(self, x: tf.Tensor) -> Any:
        return self.total.assign_add(call(functions.plus_one, x, VECTOR))


class Checked(Model):
    """The functions with checks, and one that assigns a variable before it fails."""

    def __init__(self) -> None:
        super().__init__(CHECKED)
        self.total = tf.Variable(tf.zeros([4]))
        self.served["add"] = self.add

    @tf.function(input_signature=[VECTOR])
    def add(self, x: tf.Tensor) -> Any:
        return {"result": self._added(x)}

    @tf.function(jit_compile=True)
    def _added(self, x: tf.Tensor) -> Any:
        self.total.assign_add(call(functions.plus_one, x, VECTOR))
        return self.total + tf.gather(TEN, _integers(x))


def _signature(body: Body, spec: tf.TensorSpec, compiled: bool) -> Any:
    inner = tf.function(body, jit_compile=True) if compiled else body
    return tf.function(lambda x: {"result": inner(x)}, input_signature=[spec])


def save(model: tf.Module, folder: str) -> None:
    tf.saved_model.save(model, folder, signatures=model.served)


def endpoints(folder: str) -> dict[str, tuple[str, str]]:
    """The names of the tensors of each signature: what goes in, and what comes out."""
    from tensorflow.python.saved_model import loader_impl

    (meta,) = loader_impl.parse_saved_model(folder).meta_graphs
    return {
        key: (
            next((value.name for value in signature.inputs.values()), "none"),
            next(value.name for value in signature.outputs.values()),
        )
        for key, signature in meta.signature_def.items()
        if signature.outputs
    }


def _computed(body: Body, spec: tf.TensorSpec, value: Any) -> Any:
    x = tf.constant(value, tf.float32)
    return np.asarray(tf.function(body, input_signature=[spec])(x)).tolist()


def main(root: str) -> None:
    """Writes the models, and prints their endpoints and what they compute."""
    said: dict[str, Any] = {}
    one = {name: NATIVE[name] for name in ("native", "sums")}
    models = {"native": NATIVE, "python": PYTHON, "bad": BAD, "one": one}
    for name, bodies in models.items():
        save(Model(bodies), f"{root}/{name}")
        said[name] = endpoints(f"{root}/{name}")
    save(Checked(), f"{root}/checked")
    said["checked"] = endpoints(f"{root}/checked")
    save(WithVariable(), f"{root}/variable")
    said["variable"] = endpoints(f"{root}/variable")
    said["values"] = {
        name: _computed(*{**NATIVE, **PYTHON}[name], x)
        for name, x in {**NATIVE_INPUTS, **PYTHON_INPUTS}.items()
    }
    checked = {name: good for name, (good, _) in CHECKED_INPUTS.items()} | VALUE_INPUTS
    said["values"] |= {name: _computed(*CHECKED[name], x) for name, x in checked.items()}
    hostcall.disable()
    stock = tf.Module()
    stock.served = {"stock": _signature(lambda x: call(functions.double, x), VECTOR, False)}
    save(stock, f"{root}/stock")
    said["stock"] = endpoints(f"{root}/stock")
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])

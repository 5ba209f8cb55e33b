"""Tokens: an op of another process never calls a function of this one."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

_SAVE = """
import os
import numpy as np, tensorflow as tf
{imports}

def calling(op, function):
    program = lambda x: tf.ensure_shape(op(function, [x], tf.float32), [2])
    return tf.function(program, input_signature=[tf.TensorSpec([2], tf.float32)])

module = tf.Module()
module.halve = calling(tf.numpy_function, lambda v: v / 2)
module.third = calling(tf.py_function, lambda v: v / 3)
tf.saved_model.save(module, os.environ["MODEL"])
"""

# Functions under the numbers that the saved ops have in the process which has saved them.
_LOAD = """
import os
import numpy as np, tensorflow as tf
{imports}

def negative(v):
    return -v

x = tf.constant([2.0, 4.0])
own = [
    tf.function(lambda x, op=op: op(negative, [x], tf.float32)).get_concrete_function(x)
    for op in (tf.numpy_function, tf.py_function)
    for _ in range(4)
]
{late}
path = os.environ["MODEL"]
loaded = tf.saved_model.load(path)

def tell(how, call):
    try:
        print(how, np.asarray(call()).tolist())
    except tf.errors.InvalidArgumentError as error:
        found = "Could not find callback with key=" in error.message
        print(how, "not found" if found else error.message)

def in_session(name):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], path)
        (node,) = [
            n
            for f in session.graph_def.library.function
            for n in f.node_def
            if n.op == ("PyFunc" if name == "halve" else "EagerPyFunc")
        ]
        token = node.attr["token"].s
        op = getattr(tf.raw_ops, node.op)
        return session.run(op(input=[tf.constant([2.0, 4.0])], token=token, Tout=[tf.float32])[0])

def eagerly(name):
    concrete = getattr(loaded, name).concrete_functions[0]
    (node,) = [n for n in concrete.function_def.node_def if "token" in n.attr]
    op = getattr(tf.raw_ops, node.op)
    return op(input=[x], token=node.attr["token"].s, Tout=[tf.float32])[0]

for name in ("halve", "third"):
    function = getattr(loaded, name)
    tell(name + " eager", lambda: eagerly(name))
    tell(name + " graph", lambda: function(x))
    tell(name + " session", lambda: in_session(name))
    tell(name + " compiled", lambda: tf.function(function, jit_compile=True)(x))
"""


@pytest.mark.parametrize(
    ("saving", "loading", "late", "variables"),
    [
        ("import hostcall", "import hostcall", "", {}),
        ("import hostcall", "import hostcall", "", {"HOSTCALL_ROUTE": "partition"}),
        ("", "import hostcall", "", {}),
        ("import hostcall", "", "import hostcall", {}),
    ],
    ids=["compiled", "partitioned", "saved without hostcall", "functions older than the import"],
)
def test_a_saved_op_does_not_call_the_function_of_its_number(
    run_python: Callable[..., str],
    tmp_path: Path,
    saving: str,
    loading: str,
    late: str,
    variables: dict[str, str],
) -> None:
    model = str(tmp_path / "model")
    run_python(_SAVE.format(imports=saving), MODEL=model)
    printed = run_python(_LOAD.format(imports=loading, late=late), MODEL=model, **variables)
    calls = itertools.product(("halve", "third"), ("eager", "graph", "session", "compiled"))
    assert printed.splitlines() == [f"{name} {way} not found" for name, way in calls]


_NEW_TOKEN = """
import os
import tensorflow as tf
import hostcall

def new_token():
    program = tf.function(lambda x: tf.numpy_function(lambda v: v, [x], tf.float32))
    nodes = program.get_concrete_function(tf.zeros([])).graph.as_graph_def().node
    return next(n.attr["token"].s.decode() for n in nodes if n.op == "PyFunc")
"""

_FORKED = """
new_token()
reading, writing = os.pipe()
if not os.fork():
    os.write(writing, new_token().encode())
    os._exit(0)
print(new_token(), os.read(reading, 100).decode())
"""

_DISABLED = """
print(new_token())
hostcall.disable()
print(new_token())
hostcall.enable()
print(new_token())
"""


def test_a_forked_process_makes_tokens_of_its_own(run_python: Callable[..., str]) -> None:
    tokens = run_python(_NEW_TOKEN + _FORKED).split()
    numbers, nonces = zip(
        *(token.removeprefix("pyfunc_").split("_") for token in tokens), strict=True
    )
    assert numbers == ("1", "1")
    assert nonces[0] != nonces[1]


def test_tokens_are_stocks_where_hostcall_is_disabled(run_python: Callable[..., str]) -> None:
    first, second, third = run_python(_NEW_TOKEN + _DISABLED).split()
    assert re.fullmatch(r"pyfunc_0_[0-9a-f]{8}", first)
    assert second == "pyfunc_1"
    assert third == first.replace("_0_", "_2_")

"""hostcall._saved.tokens: structures as JSON, and what is read of files of anybody."""

import collections
import json
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import hostcall
from hostcall._saved import decoding, tokens
from hostcall._saved.tokens import Declared, FunctionRecord, Record, SavedFunctionError
from tests.support.saved import functions as users

CALL = Record(
    id="pyfunc_0_12345678",
    kind="eager",
    inputs=1,
    outputs="float32",
    at="model.py:7",
    function=FunctionRecord(place=f"{users.__name__}:cube"),
    declared=Declared(timeout=5.0),
    static=[{"spec": ["float32", [4]]}],
    plain=[{"spec": ["float32", None]}],
    differentiable=True,
)
GRADIENT = Record(
    id="pyfunc_1_12345678",
    kind="gradient",
    inputs=3,
    outputs={"list": [{"spec": ["float32", None]}]},
    of=CALL,
    targets=[0],
    sources=[0],
    differentiable=True,
)


def test_spec_is_made_of_a_token() -> None:
    hostcall.allow(users.__name__)
    token = tokens.encode(CALL)
    assert token.startswith('hostcall:1:{"id":"pyfunc_')
    spec = decoding.resolve(token)
    assert spec.function is users.cube
    assert spec.options.timeout == 5.0
    assert spec.op_dtypes == [tf.float32, tf.int64]
    assert "cube" in spec.description
    assert spec.description.endswith("called at model.py:7")
    assert decoding.resolve(tokens.encode(CALL)) is spec
    assert decoding.resolve(tokens.encode(GRADIENT)).parent is spec


def changed(**fields: Any) -> str:
    return tokens.encode(msgspec.structs.replace(CALL, **fields))


BAD = {
    "no JSON": "hostcall:1:no",
    "nothing": "hostcall:",
    "another version": "hostcall:2:{}",
    "a list": "hostcall:1:[]",
    "another field": tokens.encode(CALL).replace('"kind"', '"extra":1,"kind"'),
    "deep": "hostcall:1:" + '{"id":"a","kind":"gradient","inputs":1,"outputs":1,"of":' * 50_000,
    "deep structure": "hostcall:1:" + "[" * 100_000,
    "no function": changed(function=None),
    "no name": changed(function=FunctionRecord()),
    "a bad place": changed(function=FunctionRecord(place="os.system('ls')")),
    "a place with spaces": changed(function=FunctionRecord(place="os: system")),
    "gradient of arrays": tokens.encode(
        msgspec.structs.replace(GRADIENT, of=msgspec.structs.replace(CALL, kind="numpy"))
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_token_is_an_error(what: str) -> None:
    hostcall.allow(users.__name__, "os")
    with pytest.raises(SavedFunctionError, match="damaged or altered"):
        decoding.resolve(BAD[what])


SENSELESS: dict[str, dict[str, Any]] = {
    "no dtype": {"outputs": "no_dtype"},
    "no structure": {"inputs": {"x": []}},
    "a lone input": {"inputs": "float32"},
    "other results": {"static": []},
    "a timeout in the past": {"declared": Declared(timeout=-1.0)},
    "no literal": {"function": FunctionRecord(place=f"{users.__name__}:cube", fixed={"a": "f()"})},
}


@pytest.mark.parametrize("what", SENSELESS)
def test_record_that_makes_no_sense_is_an_error(what: str) -> None:
    hostcall.allow(users.__name__)
    with pytest.raises(SavedFunctionError, match="makes no sense"):
        decoding.resolve(changed(**SENSELESS[what]))


def saved(path: Any, program: Any) -> Path:
    """The file of a model with a function of four floats."""
    module = tf.Module()
    spec = tf.TensorSpec([4], tf.float32)
    module.program = tf.function(program, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(path))
    return Path(path, "saved_model.pb")


def altered_kind(node: Any) -> None:
    kinds = [b'"kind":"numpy"', b'"kind":"eager"']
    old, new = kinds if node.op == "PyFunc" else reversed(kinds)
    node.attr["token"].s = node.attr["token"].s.replace(old, new)


def altered_op(node: Any) -> None:
    node.op = "PyFunc" if node.op == "EagerPyFunc" else "EagerPyFunc"
    for name in ("is_async", "_hostcall_shapes"):
        node.attr.pop(name, None)


def exchanged(node: Any) -> None:
    """Use the token of a function of the other kind, which this process knows."""
    node.attr["token"].s = known_tokens[node.op == "PyFunc"]


known_tokens: dict[bool, bytes] = {}


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("alter", [altered_kind, altered_op, exchanged])
def test_no_op_of_tensors_calls_functions_of_arrays(tmp_path: Any, alter: Any, kind: str) -> None:
    """An altered graph is refused, even where its functions take arrays and tensors alike."""
    hostcall.allow(users.__name__)
    call = tf.numpy_function if kind == "array" else tf.py_function

    def program(x: Any) -> Any:
        for one in (tf.numpy_function, tf.py_function):
            one(users.halve, [x], tf.float32)
        return call(users.cube, [x], tf.float32)

    file = saved(tmp_path, program)
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    nodes = [
        node
        for function in model.meta_graphs[0].graph_def.library.function
        for node in function.node_def
        if node.op in ("PyFunc", "EagerPyFunc")
    ]
    for node in nodes:
        if b":halve" in node.attr["token"].s:
            known_tokens[node.op == "EagerPyFunc"] = node.attr["token"].s
    (cube,) = [node for node in nodes if b":cube" in node.attr["token"].s]
    alter(cube)
    file.write_bytes(model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is not known here already is told of at once
        loaded = tf.saved_model.load(str(tmp_path))
    jitted = tf.function(loaded.program, jit_compile=True)
    for called in (loaded.program, jitted):
        with pytest.raises(tf.errors.OpError, match=r"graph was .*altered"):
            called(tf.zeros([4]))


Pair = collections.namedtuple("Pair", ["low", "high"])

SPEC = tf.TensorSpec([None, 3], tf.float32)
RAGGED = tf.RaggedTensorSpec([None, None], tf.int32)
SPARSE = tf.SparseTensorSpec([3, 4], tf.float64)
BOUNDED = hostcall.BoundedSpec([5, 2], tf.int64, [1])


STRUCTURES = [
    *(None, [None, None], tf.float32, tf.string, [], (), SPEC, BOUNDED, RAGGED, SPARSE),
    *(tf.TensorSpec(None, tf.bool), tf.TensorSpec([], tf.bfloat16)),
    [SPEC, (tf.int32, {"a": BOUNDED, "b": [RAGGED]})],
    {1: tf.int32, 0: tf.string},
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_what_is_written_is_read_again(structure: Any) -> None:
    written = json.loads(json.dumps(tokens.to_json(structure)))
    assert tokens.from_json(written) == structure


def test_namedtuple_has_its_name_and_fields_again() -> None:
    read = tokens.from_json(tokens.to_json(Pair(SPEC, tf.int32)))
    assert (type(read).__name__, read._fields) == ("Pair", ("low", "high"))
    assert (read.low, read.high) == (SPEC, tf.int32)


def test_dtypes_of_other_libraries_are_written_as_tensorflows() -> None:
    assert tokens.to_json([np.float32, float, "int8"]) == {"list": ["float32", "float32", "int8"]}


@pytest.mark.parametrize("value", [object(), {("a", 1): tf.int32}, [b"bytes no dtype"]])
def test_what_has_no_words_is_an_error(value: Any) -> None:
    with pytest.raises(tokens.UnwritableError, match="cannot be written"):
        tokens.to_json(value)


NO_STRUCTURES = [
    *("no_dtype", 7, {}, {"list": 3}, {"list": [], "tuple": []}, {"eval": "1"}),
    *({"spec": ["float32"]}, {"spec": ["float32", [-5, "x"]]}, {"dict": [[None, None]]}),
    *({"composite": text} for text in ("no base64!", "AAAA", "")),
    {"bounded": ["float32", [None], [0]]},
    {"namedtuple": ["import os", ["a"], [None]]},
    {"namedtuple": ["A", ["a", "b"], [None]]},
]


@pytest.mark.parametrize("value", NO_STRUCTURES, ids=str)
def test_what_is_no_structure_is_an_error(value: Any) -> None:
    with pytest.raises(tokens.UnreadableError):
        tokens.from_json(value)

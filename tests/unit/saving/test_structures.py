"""hostcall._saving.tokens: structures of types as JSON, and back."""

from __future__ import annotations

import collections
import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._saving import tokens

Pair = collections.namedtuple("Pair", ["low", "high"])

SPEC = tf.TensorSpec([None, 3], tf.float32)
RAGGED = tf.RaggedTensorSpec([None, None], tf.int32)
SPARSE = tf.SparseTensorSpec([3, 4], tf.float64)
BOUNDED = hostcall.BoundedSpec([5, 2], tf.int64, [1])


@pytest.mark.parametrize(
    "structure",
    [
        None,
        [None, None],
        tf.float32,
        tf.string,
        SPEC,
        tf.TensorSpec(None, tf.bool),
        tf.TensorSpec([], tf.bfloat16),
        BOUNDED,
        RAGGED,
        SPARSE,
        [SPEC, (tf.int32, {"a": BOUNDED, "b": [RAGGED]})],
        {1: tf.int32, 0: tf.string},
        [],
        (),
    ],
    ids=str,
)
def test_what_is_written_is_read_again(structure: Any) -> None:
    written = json.loads(json.dumps(tokens.write(structure)))
    assert tokens.read(written) == structure


def test_namedtuple_has_its_name_and_fields_again() -> None:
    read = tokens.read(tokens.write(Pair(SPEC, tf.int32)))
    assert (type(read).__name__, read._fields) == ("Pair", ("low", "high"))
    assert (read.low, read.high) == (SPEC, tf.int32)


def test_dtypes_of_other_libraries_are_written_as_tensorflows() -> None:
    assert tokens.write([np.float32, float, "int8"]) == {"list": ["float32", "float32", "int8"]}


@pytest.mark.parametrize("value", [object(), {("a", 1): tf.int32}, [b"bytes no dtype"]])
def test_what_has_no_words_is_an_error(value: Any) -> None:
    with pytest.raises(tokens.UnwritableError, match="cannot be written"):
        tokens.write(value)


@pytest.mark.parametrize(
    "value",
    [
        "no_dtype",
        7,
        {},
        {"list": 3},
        {"spec": ["float32"]},
        {"spec": ["float32", [-5, "x"]]},
        {"bounded": ["float32", [None], [0]]},
        {"composite": "no base64!"},
        {"composite": "AAAA"},
        {"composite": ""},
        {"namedtuple": ["import os", ["a"], [None]]},
        {"namedtuple": ["A", ["a", "b"], [None]]},
        {"dict": [[None, None]]},
        {"list": [], "tuple": []},
        {"eval": "1"},
    ],
    ids=str,
)
def test_what_is_no_structure_is_an_error(value: Any) -> None:
    with pytest.raises(tokens.UnreadableError):
        tokens.read(value)

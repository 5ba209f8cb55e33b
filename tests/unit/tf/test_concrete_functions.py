"""hostcall._tf.concrete_functions: TensorFlow's cache, and functions that others own."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from hostcall._tf import concrete_functions, protos


def test_functions_are_owned_once() -> None:
    """Return whether the context has just been given the functions."""
    owner = tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec([], tf.float32))
    derived = protos.copy_of(owner.function_def)
    derived.signature.name = f"{owner.function_def.signature.name}__derived"
    name = owner.function_def.signature.name

    assert concrete_functions.own_functions(name, [derived])
    added = concrete_functions.function_of_context(derived.signature.name)
    assert added.signature.name == derived.signature.name
    assert not concrete_functions.own_functions(name, [derived])


def test_a_function_that_is_not_there_owns_nothing() -> None:
    function = protos.function_pb2.FunctionDef()
    function.signature.name = "hostcall_owned_by_nobody"
    assert not concrete_functions.own_functions("hostcall_nobody", [function])
    assert concrete_functions.function_of_context(function.signature.name) is None


@pytest.mark.parametrize(
    ("flags", "is_on"),
    [
        ("", False),
        ("--tf_xla_auto_jit=2", False),
        ("--tf_xla_persistent_cache_directory=/a", True),
        ("--tf_xla_auto_jit=2 --tf_xla_persistent_cache_directory=/a", True),
    ],
)
def test_the_flag_of_tensorflow(
    flags: str, is_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    assert concrete_functions.is_on() == is_on
    path = tmp_path / "flags"
    path.write_text(flags + "\n")
    monkeypatch.setenv("TF_XLA_FLAGS", str(path))
    assert concrete_functions.is_on() == is_on
    monkeypatch.setenv("TF_XLA_FLAGS", str(tmp_path / "missing"))
    assert not concrete_functions.is_on()

"""hostcall._tf.concrete_functions: TensorFlow's cache, and functions that others own."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from hostcall._tf import concrete_functions, features


@pytest.mark.parametrize(
    ("flags", "is_on"),
    [
        ("", False),
        ("--tf_xla_auto_jit=2", False),
        ("--tf_xla_persistent_cache_directory=/a", True),
        ("--tf_xla_auto_jit=2 --tf_xla_persistent_cache_directory=/a", True),
    ],
)
def test_tensorflows_flag(flags: str, is_on: bool, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    assert concrete_functions.is_on() == is_on
    path = tmp_path / "flags"
    path.write_text(flags + "\n")
    monkeypatch.setenv("TF_XLA_FLAGS", str(path))
    assert concrete_functions.is_on() == is_on
    monkeypatch.setenv("TF_XLA_FLAGS", str(tmp_path / "missing"))
    assert not concrete_functions.is_on()


def test_a_function_that_another_thread_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two threads makes a forward function at a first call, and one of the two goes."""
    concrete = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([]))
    definition = concrete.function_def
    definition.signature.name += "_removed"
    name = definition.signature.name
    context = features.context()
    context.add_function_def(definition)
    assert concrete_functions.function_of_context(name) is not None

    has_function = context.has_function

    def removed_when_asked(asked: str) -> bool:
        is_there = bool(has_function(asked))
        if asked == name and is_there:
            context.remove_function(name)
        return is_there

    monkeypatch.setattr(context, "has_function", removed_when_asked)
    concrete_functions.function_of_context(name)
    monkeypatch.undo()
    if context.has_function(name):
        context.remove_function(name)
    assert concrete_functions.function_of_context(name) is None

"""hostcall._tf.concrete_functions: TensorFlow's cache, and functions that others own."""

from pathlib import Path
from typing import Any

import pytest

from hostcall._tf import concrete_functions


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

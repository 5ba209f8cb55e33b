"""Keras models that are exported, in other processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.saved import functions

_RUN = "import hostcall; from tests.support.saved import keras_models as m; "


def test_exported_model_as_a_layer_and_by_the_command(
    run_python: Callable[..., str], tmp_path: Path
) -> None:
    path = str(tmp_path / "model")
    exported = run_python(f"{_RUN}print(m.export({path!r}))").splitlines()[-1]
    assert exported == "[[2.0, 2.0], [2.0, 2.0]]"
    assert run_python(f"{_RUN}print(m.as_layer({path!r}))").splitlines()[-1] == exported
    allowed = {"HOSTCALL_ALLOW": functions.__name__}
    printed = run_python(f"{_RUN}m.by_command({path!r})", **allowed)
    assert "[[2. 2.]\n [2. 2.]]" in printed

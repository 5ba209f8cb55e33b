"""Exported programs import nothing for the names in them until the user permits it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall_mlir
from hostcall_mlir.program import files
from hostcall_runtime import _permissions
from tests.support.exported.programs import F3, FUNCTIONS, TRIPLE, calling, make

LOADERS: dict[str, Callable[..., Any]] = {
    "hostcall": hostcall.load,
    "hostcall_mlir": hostcall_mlir.load,
}


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_permissions, "_allowed", {})


@pytest.fixture(params=[*LOADERS])
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def saved(made: files.Program, folder: Path) -> Path:
    made.save(folder)
    files.trust(made.artifact)
    return folder


def error_of(package: str, folder: Path, **options: Any) -> str:
    with pytest.raises(hostcall_mlir.ProgramError) as raised:
        LOADERS[package](folder, **options)
    return str(raised.value)


def test_program_is_loaded_once_its_module_is_allowed(package: str, tmp_path: Path) -> None:
    folder = saved(make(TRIPLE), tmp_path)
    text = error_of(package, folder)
    called = f"'{FUNCTIONS}:triple' (called at model.py:10)"
    assert f"{called}: not allowed to import {FUNCTIONS}" in text
    environment = f"    # or HOSTCALL_ALLOW={FUNCTIONS} in the environment"
    line = f'    {package}.allow("{FUNCTIONS}"){environment}'
    assert text.endswith(f"If you trust the program, write before it is loaded:\n\n{line}")
    exec(line.strip(), {"hostcall": hostcall, "hostcall_mlir": hostcall_mlir})
    np.testing.assert_array_equal(LOADERS[package](folder)(F3), F3 * 3)


def test_nothing_is_imported_before_it_is_allowed(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "leave_unwanted.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    text = error_of(package, saved(calling("leave_unwanted:f"), tmp_path / "program"))
    assert "not allowed to import leave_unwanted" in text
    assert "leave_unwanted" not in sys.modules


def test_each_line_to_write_is_there_once(package: str, tmp_path: Path) -> None:
    made = calling("numpy:negative", "triple", "numpy:sort", "positive", "numpy:sort#2")
    text = error_of(package, saved(made, tmp_path))
    lines = text.rpartition("\n\n")[2].splitlines()
    places = [line.partition('"')[2].partition('"')[0] for line in lines]
    assert places == ["numpy:negative", FUNCTIONS, "numpy:sort"]
    hostcall.allow("numpy:negative", "numpy:sort")
    text = error_of(package, tmp_path)
    assert "numpy" not in text
    assert text.count(".allow(") == 1


def test_what_is_given_needs_no_leave(package: str, tmp_path: Path) -> None:
    folder = saved(make(TRIPLE), tmp_path)
    given = {f"{FUNCTIONS}:triple": lambda x: x * np.float32(5)}
    loaded = LOADERS[package](folder, callbacks=given)
    np.testing.assert_array_equal(loaded(F3), F3 * 5)


def test_leave_for_one_function_is_for_no_other(package: str, tmp_path: Path) -> None:
    hostcall.allow(f"{FUNCTIONS}:triple")
    folder = saved(make(TRIPLE), tmp_path / "one")
    np.testing.assert_array_equal(LOADERS[package](folder)(F3), F3 * 3)
    text = error_of(package, saved(calling("triple", "Scaler.twice"), tmp_path / "other"))
    assert f"'{FUNCTIONS}:Scaler.twice'" in text
    assert f"'{FUNCTIONS}:triple'" not in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("np.negative", "is not a function of a module or of a class in it"),
        ("triple.__globals__", "is not a function of a module or of a class in it"),
        ("Scaler.__subclasses__", "does not exist"),
        ("NamedTuple", "comes from typing, which is not allowed"),
    ],
)
def test_an_allowed_module_does_not_lead_to_others(
    name: str, reason: str, package: str, tmp_path: Path
) -> None:
    hostcall.allow(FUNCTIONS)
    text = error_of(package, saved(calling(name), tmp_path))
    assert f"{FUNCTIONS}:{name} {reason}" in text
    assert (".allow(" in text) == ("comes from" in reason)


def test_classes_of_structures_need_leave_like_functions(package: str, tmp_path: Path) -> None:
    text = "func.func public @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    structure = {"namedtuple": f"{FUNCTIONS}:Pair", "items": [0, None]}
    folder = saved(make(text, results=structure), tmp_path)
    assert f"namedtuple '{FUNCTIONS}:Pair': not allowed to import" in error_of(package, folder)
    hostcall.allow(f"{FUNCTIONS}:Pair")
    assert LOADERS[package](folder)(np.float32(2)).one == 2


def test_process_that_has_exported_a_program_allows_it_like_others(tmp_path: Path) -> None:
    """As with SavedModels: that a function is imported here says nothing of who calls it."""
    function = tf.function(lambda x: tf.numpy_function(np.sort, [x], tf.TensorSpec([3])))
    hostcall.export(function, tf.TensorSpec([3])).save(tmp_path)
    assert 'hostcall.allow("numpy:sort")' in error_of("hostcall", tmp_path)
    hostcall.allow("numpy:sort")
    np.testing.assert_array_equal(hostcall.load(tmp_path)(F3), np.sort(F3))

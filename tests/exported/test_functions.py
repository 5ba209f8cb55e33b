"""hostcall_mlir.program.function_lookup: how the functions of an exported program are found."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir.program.function_lookup import signature_of
from tests.support.exported import functions
from tests.support.exported.programs import F3, FUNCTIONS, calling, load, make


def problem_of(made: Any, folder: Path, **options: Any) -> str:
    with pytest.raises(hostcall_mlir.ProgramError) as raised:
        load(made, folder, **options)
    return str(raised.value)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that can be imported as `exported_module`."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    hostcall_mlir.allow("exported_module", "no_such_module")
    yield folder / "exported_module.py"
    sys.modules.pop("exported_module", None)


@pytest.mark.parametrize(
    ("name", "factor"),
    [("triple", 3), ("Scaler.twice", 2), ("MARKED", 3), ("triple#2", 3), ("numpy:negative", -1)],
)
def test_function_is_imported_by_its_name(name: str, factor: int, tmp_path: Path) -> None:
    np.testing.assert_array_equal(load(calling(name), tmp_path).call(F3), F3 * factor)


def test_function_that_is_given_goes_before_the_one_that_is_imported(tmp_path: Path) -> None:
    made = calling("triple", "triple#2")
    negative = {f"{FUNCTIONS}:triple": np.negative}
    np.testing.assert_array_equal(load(made, tmp_path, callbacks=negative).call(F3), F3)
    second = {f"{FUNCTIONS}:triple#2": np.negative}
    np.testing.assert_array_equal(load(made, tmp_path, callbacks=second).call(F3), F3 * -3)
    marked = {f"{FUNCTIONS}:triple": functions.MARKED}
    np.testing.assert_array_equal(load(made, tmp_path, callbacks=marked).call(F3), F3 * 9)


def test_chosen_name_is_given_or_found_by_what_the_manifest_says(tmp_path: Path) -> None:
    made = calling("my:solver:1", function=f"{FUNCTIONS}:triple")
    np.testing.assert_array_equal(load(made, tmp_path).call(F3), F3 * 3)
    made = calling("my:solver:1", function=None)
    assert "it can only be given: pass callbacks={'my:solver:1': …}" in problem_of(made, tmp_path)
    given = {"my:solver:1": functions.triple}
    np.testing.assert_array_equal(load(made, tmp_path, callbacks=given).call(F3), F3 * 3)


def test_nothing_is_imported_where_that_is_forbidden(tmp_path: Path, module: Path) -> None:
    module.write_text("raise AssertionError('imported')")
    made = calling("exported_module:f")
    text = problem_of(made, tmp_path, imports=False)
    assert "imports=False says not to import it: pass callbacks={'exported_module:f': …}" in text
    given = {"exported_module:f": np.negative}
    result = load(made, tmp_path, imports=False, callbacks=given).call(F3)
    np.testing.assert_array_equal(result, -F3)


def test_nothing_is_imported_of_a_program_that_is_damaged(tmp_path: Path, module: Path) -> None:
    module.write_text("raise AssertionError('imported')")
    calling("exported_module:f").save(tmp_path)
    with (tmp_path / "program.stablehlo").open("ab") as file:
        file.write(b"more")
    with pytest.raises(hostcall_mlir.ProgramError, match="not the file that was exported"):
        hostcall_mlir.load(tmp_path)
    assert "exported_module" not in sys.modules


def test_all_that_is_missing_is_in_one_error(tmp_path: Path, module: Path) -> None:
    module.write_text("import no_such_package")
    made = calling(
        "no_such_module:f",
        "exported_module:f",
        "no_such_function",
        "NUMBER",
        "Scaler.<locals>.inner",
        "triple",
    )
    text = problem_of(made, tmp_path, callbacks={"other": print})
    assert "functions that predict calls are not allowed or missing" in text
    for part in (
        "'no_such_module:f' (called at model.py:10): module 'no_such_module' cannot be imported, "
        "since it is not installed here",
        "since 'no_such_package', which it imports, is not installed here",
        f"{FUNCTIONS}:no_such_function does not exist (any more). Was it renamed",
        "an int is there, which cannot be called",
        "Scaler.<locals>.inner is a function inside of another, or a lambda",
        "callbacks has 'other', which the program does not call: it calls '",
    ):
        assert part in text
    assert text.count("\n  - ") == 6
    assert f"'{FUNCTIONS}:triple' (called" not in text


@pytest.mark.parametrize("code", ["1 / 0", "raise SystemExit(3)", "def f(:"])
def test_module_that_fails_is_told(code: str, tmp_path: Path, module: Path) -> None:
    module.write_text(code)
    text = problem_of(calling("exported_module:f"), tmp_path)
    assert "importing module 'exported_module' fails: " in text


def test_other_parameters_than_when_it_was_exported_are_told(tmp_path: Path) -> None:
    same = calling("triple", signature="(x)")
    np.testing.assert_array_equal(load(same, tmp_path).call(F3), F3 * 3)
    other = calling("triple", signature="(x, y=…)")
    text = problem_of(other, tmp_path)
    assert "its parameters are (x), and were (x, y=…) when the program was exported" in text
    # Of what is given nobody but the user can say what it has to be.
    given = {f"{FUNCTIONS}:triple": lambda *args: -args[0]}
    np.testing.assert_array_equal(load(other, tmp_path, callbacks=given).call(F3), -F3)


def test_function_that_is_given_has_to_take_the_arguments(tmp_path: Path) -> None:
    given = {f"{FUNCTIONS}:triple": lambda x, y: x}
    text = problem_of(calling("triple"), tmp_path, callbacks=given)
    assert "calls it with 1 argument, and the function in callbacks takes (x, y)" in text
    none = problem_of(calling("triple"), tmp_path, callbacks={f"{FUNCTIONS}:triple": None})
    assert "a NoneType is there, which cannot be called" in none
    text = problem_of(calling("triple", out=True), tmp_path, callbacks=given)
    assert "calls it with 1 argument and out=…, and the function" in text


@pytest.mark.parametrize("given", [[1], 3, "triple"])
def test_callbacks_have_to_be_a_dict(given: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"callbacks is .*, and has to be a dict from the names of"):
        load(calling("triple"), tmp_path, callbacks=given)


def test_function_of_eager_tensors_has_to_be_given(tmp_path: Path) -> None:
    made = calling("triple", kind="eager")
    text = problem_of(made, tmp_path)
    assert "TensorFlow's tensors (tf.py_function)" in text
    assert "Export the program with tf.numpy_function or hostcall.callback" in text
    given = {f"{FUNCTIONS}:triple": functions.triple}
    np.testing.assert_array_equal(load(made, tmp_path, callbacks=given).call(F3), F3 * 3)


def test_namedtuples_are_found_like_functions(tmp_path: Path) -> None:
    def made(name: str) -> Any:
        text = "func.func public @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
        return make(text, results={"namedtuple": name, "items": [0]})

    class One(tuple[Any]):
        _fields = ("one",)

        def __new__(cls, one: Any) -> "One":
            return super().__new__(cls, (one,))

    assert "Nothing does not exist" in problem_of(made(f"{FUNCTIONS}:Nothing"), tmp_path)
    assert "which is not a namedtuple" in problem_of(made(f"{FUNCTIONS}:triple"), tmp_path)
    text = problem_of(made(f"{FUNCTIONS}:Pair"), tmp_path, imports=False)
    assert f"pass callbacks={{'{FUNCTIONS}:Pair': …}} with the class" in text
    given = {f"{FUNCTIONS}:Pair": One}
    result = load(made(f"{FUNCTIONS}:Pair"), tmp_path, imports=False, callbacks=given).call(2.0)
    assert isinstance(result, One)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (functions.plus, "(x, y, scale=…)"),
        (lambda x, *args, key, **more: x, "(x, *args, key, **more)"),
        (lambda x, /, y=object(): x, "(x, /, y=…)"),  # noqa: B008
        (np.vectorize(lambda x: x), "(*args, **kwargs)"),
        (5, None),
    ],
)
def test_signature_has_names_and_kinds_alone(function: Any, text: str | None) -> None:
    assert signature_of(function) == text

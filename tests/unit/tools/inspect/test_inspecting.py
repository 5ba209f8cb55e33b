"""hostcall.inspect: the Python functions that files of another process name."""

import json
import shutil
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from click.testing import CliRunner
from tensorflow.core.protobuf import saved_model_pb2

import hostcall
from hostcall_command import commands
from hostcall_runtime import _permissions
from tests.support.stress.template import Template

USERS = "tests.support.saved.functions"
_RUN = "import hostcall; from tests.support.saved import files; print(files.{}({!r}))"


@pytest.fixture(scope="module")
def folder(fresh_python: Template, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind, which another process has written."""
    path = tmp_path_factory.mktemp("files")
    ended = fresh_python.run_program(_RUN.format("write", str(path)))
    assert ended.status == 0, ended.said
    return path


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_permissions, "_allowed", {})
    for name in ("tests>Registered", "tests>cubic_loss"):
        monkeypatch.delitem(keras.saving.get_custom_objects(), name, raising=False)


def inspected(path: Path) -> dict[str, Any]:
    """Inspect a file, and return the functions found by the last part of their names."""
    found = hostcall.inspect(path).functions
    return {one.name.partition(" (")[0].rpartition(":")[2]: one for one in found}


def test_saved_model_names_functions_with_their_uses(folder: Path) -> None:
    found = inspected(folder / "model")
    assert [name for name in found if "lambda" not in name] == ["cube", "inspected_double", "halve"]
    cube = found["cube"]
    assert (cube.place, cube.given_name, cube.pickle) == (f"{USERS}:cube", None, None)
    by_kind: dict[str, list[Any]] = {}
    for use in cube.uses:
        assert use.line.startswith("files.py:")
        by_kind.setdefault(use.kind, []).append(use)
    calls = {use.of: use for use in by_kind["tf.py_function"]}
    assert calls.keys() == {("encoder.encode",), ("signature train", "step")}
    assert calls[("encoder.encode",)].arguments == ("float32(4,)",)
    (gradient,) = by_kind["the gradient of tf.py_function"]
    assert gradient.of == ("signature train", "step")


def test_saved_model_tells_what_was_declared(folder: Path) -> None:
    double = inspected(folder / "model")["inspected_double"]
    assert double.given_name == "tests::inspected_double"
    assert double.declared == {"shape_function": True, "timeout": 5.0}
    (use,) = double.uses
    floats = ("float32(4,)",)
    assert (use.kind, use.arguments, use.results) == ("hostcall.callback", floats, floats)


def test_inspection_says_what_is_missing_and_what_to_write(folder: Path) -> None:
    found = inspected(folder / "model")
    assert found["halve"].problem == f"not allowed to import {USERS}"
    assert f'hostcall.allow("{USERS}")' in found["halve"].write
    assert "hostcall.provide" in found["inspected_double"].write
    (carried,) = [function for name, function in found.items() if "lambda" in name]
    assert len(carried.pickle) == 64
    assert "with hostcall.load_options(allow_pickle=True):" in carried.write
    hostcall.allow(USERS)
    assert inspected(folder / "model")["halve"].problem == ""


@pytest.mark.parametrize("name", ["frozen.pb", "frozen.pbtxt"])
def test_graphs_of_their_own_have_no_pickles(folder: Path, name: str) -> None:
    found = hostcall.inspect(folder / name)
    assert (found.format, len(found.functions)) == ("GraphDef", 2)
    assert len(found.notes) == 1
    (carried,) = [function for function in found.functions if function.pickle]
    assert "only a SavedModel carries it" in carried.problem
    (halve,) = [function for function in found.functions if not function.pickle]
    assert halve.uses[0].of == ("the graph",)


def test_meta_graph(folder: Path) -> None:
    found = hostcall.inspect(folder / "graph.meta")
    assert (found.format, len(found.functions)) == ("MetaGraphDef", 1)
    assert found.functions[0].uses[0].arguments == ("float32(4,)",)


def test_exported_program(folder: Path) -> None:
    found = inspected(folder / "program")
    assert found["halve"].place == f"{USERS}:halve"
    assert found["halve"].problem == f"not allowed to import {USERS}"
    assert f'hostcall.allow("{USERS}")' in found["halve"].write
    hostcall.allow(USERS)
    inspection = hostcall.inspect(folder / "program")
    digest = json.loads((folder / "program" / "manifest.json").read_text())["sha256"]
    assert digest in inspection.notes[0]
    found = inspected(folder / "program")
    assert (found["halve"].problem, found["halve"].write) == ("", "")
    assert found["halve"].uses[0].arguments == ("float32(4,)",)
    double = found["inspected_double"]
    assert (double.problem, double.declared) == ("it can only be given", {"timeout": 5.0})
    assert "callbacks={" in double.write


def test_keras_model_names_classes_and_holds_lambdas(folder: Path) -> None:
    module = "tests.support.saved.keras_models"
    inspection = hostcall.inspect(folder / "model.keras")
    assert "Model.export" in inspection.notes[0]
    halving, registered, of_lambda, loss = inspection.functions
    assert (halving.place, halving.uses[0].node) == (f"{module}:Halving", "halving")
    assert "where it is registered" in halving.problem
    assert f"from {module} import Halving" in halving.write
    assert "custom_objects={'Halving': Halving}" in halving.write
    assert registered.given_name == "tests>Registered"
    assert registered.write == f"import {module}  # which registers tests>Registered"
    assert "bytecode" in of_lambda.problem
    assert "safe_mode=False" in of_lambda.write
    assert (loss.given_name, loss.uses[0].kind) == ("tests>cubic_loss", "a function")


def test_keras_class_that_is_registered_here_can_be_called(folder: Path) -> None:
    with keras.saving.custom_object_scope({"Halving": object}):
        halving = hostcall.inspect(folder / "model.keras").functions[0]
    assert (halving.problem, halving.write) == ("", "")


def test_keras_class_of_a_module_that_is_not_here(folder: Path, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(folder / "model.keras") as archive:
        config = archive.read("config.json")
    path = tmp_path / "other.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config.replace(b"tests.support", b"no_such.place"))
    halving = hostcall.inspect(path).functions[0]
    assert "there is no module no_such here" in halving.problem


def test_nothing_is_imported(fresh_python: Template, folder: Path, tmp_path: Path) -> None:
    """No module is imported, even if it is allowed and can be found."""
    (tmp_path / "hostcall_tests_not_imported.py").write_text("raise SystemExit('imported')")
    shutil.copytree(folder, tmp_path / "copy")
    for name in ("model/saved_model.pb", "frozen.pb"):
        file = tmp_path / "copy" / name
        data, other = file.read_bytes(), b"hostcall_tests_not_imported:f"
        place = f"{USERS}:halve".encode()
        assert place in data
        file.write_bytes(data.replace(place, other.ljust(len(place), b"f")))
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    script += _RUN.format("inspect_all", str(tmp_path / "copy"))
    allowed = {"HOSTCALL_ALLOW": "hostcall_tests_not_imported"}
    ended = fresh_python.run_program(script, **allowed)
    assert ended.status == 0, ended.said
    headlines, imported = json.loads(ended.printed.splitlines()[-1])
    assert imported is False
    assert len(headlines) == 6


def test_damaged_token_and_altered_pickle_are_told(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(folder / "model", path)
    (pickle,) = (path / "assets.extra" / "hostcall").iterdir()
    pickle.write_bytes(b"something else")
    model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for function in model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if b":halve" in node.attr["token"].s:
                node.attr["token"].s = b"hostcall:1:{}"
    (path / "saved_model.pb").write_bytes(model.SerializeToString())
    problems = [function.problem for function in hostcall.inspect(path).functions]
    assert any("damaged or altered" in problem for problem in problems)
    assert any("its pickle was altered" in problem for problem in problems)


def test_functions_of_this_process_are_found(tmp_path: Path) -> None:
    module = tf.Module()
    module.program = tf.function(
        lambda x: tf.numpy_function(lambda v: v, [x], tf.float32),
        [tf.TensorSpec([2], tf.float32)],
        autograph=False,
    )
    with pytest.warns(UserWarning, match="a SavedModel is written"):
        tf.saved_model.save(module, str(tmp_path))
    (function,) = hostcall.inspect(tmp_path / "saved_model.pb").functions
    assert function.problem == ""
    assert "lambda" in function.name


def test_what_is_no_such_file_is_an_error_of_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no graph")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{}")
    (tmp_path / "nothing").mkdir()
    for path, words in [
        (tmp_path / "missing.pb", "does not exist"),
        (tmp_path / "nothing", "holds no SavedModel"),
        (tmp_path / "note.txt", "ends in none of"),
        (tmp_path / "damaged", "does not say which format it has"),
        (folder / "broken.pb", "holds no GraphDef that can be read"),
        (folder / "broken.keras", "holds no Keras model that can be read"),
    ]:
        result = CliRunner().invoke(commands, ["inspect", str(path)])
        assert result.exit_code == 1
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_command_prints_a_table_or_json(folder: Path) -> None:
    table = CliRunner().invoke(commands, ["inspect", str(folder / "model")]).stdout
    for part in ("SavedModel with 4 Python functions", "signature train", "allow_pickle=True"):
        assert part in table
    printed = CliRunner().invoke(commands, ["inspect", str(folder / "model"), "--json"]).stdout
    as_dict = hostcall.inspect(folder / "model").to_dict()
    assert json.loads(printed) == json.loads(json.dumps(as_dict))

"""The command line: hostcall explain, rewrite and doctor."""

import dataclasses
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner, Result

import hostcall
from hostcall import _versions
from hostcall._ops import requested_routes
from hostcall._tools import doctor as _doctor
from hostcall_command import ROUTES, commands, main
from tests.support.helpers import assert_says

X = tf.constant([1.0, 2.0, 1.0])


# Each test says itself which route is asked for.
pytestmark = pytest.mark.usefixtures("auto_route")


class Model(tf.Module):
    """One function that has to be partitioned, one that stays whole, and a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(2.0)

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([3], tf.float32)])
    def partitioned(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        y = tf.numpy_function(np.unique, [tf.sin(x) * self.scale], tf.float32)
        return {"sum": tf.reduce_sum(tf.cos(y))}

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([3], tf.float32)])
    def whole(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        y = tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
        return {"sorted": y * self.scale}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = Model()
    path = tmp_path / "model"
    signatures = {"serving_default": model.partitioned, "whole": model.whole}
    tf.saved_model.save(model, str(path), signatures=signatures)
    (path / "assets" / "note.txt").write_text("kept")
    return path


def run(*args: Any) -> Result:
    result = CliRunner().invoke(commands, list(map(str, args)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def answer(*args: Any) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_explain_shows_every_signature(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)  # locations are relative, and must fit
    first, second = answer("explain", saved)
    assert [first["name"], second["name"]] == ["serving_default", "whole"]
    assert [op["route"] for op in first["script_ops"]] == ["partition"]
    assert [op["route"] for op in second["script_ops"]] == ["custom_call"]
    assert first["script_ops"][0]["callback"] == "unique"
    assert first["script_ops"][0]["file"] == __file__
    text = run("explain", saved).stdout
    assert_says(text, "serving_default", "whole", "unique", "test_cli.py", "Sin")


@pytest.mark.usefixtures("every_cluster")
def test_explain_knows_the_ops_whose_attributes_a_saved_model_leaves_out(saved: Path) -> None:
    (only,) = answer("explain", saved, "--signature", "serving_default")
    assert only["name"] == "serving_default"
    steps = [s for f in only["functions"] if f["mode"] == "partitioned" for s in f["steps"]]
    assert {s["op"] for s in steps if "op" in s} <= {"NoOp", "Identity", "ReadVariableOp"}


def test_explain_a_model_without_signatures(tmp_path: Path) -> None:
    tf.saved_model.save(Model(), str(tmp_path))
    routes = [op["route"] for e in answer("explain", tmp_path) for op in e["script_ops"]]
    assert sorted(routes) == ["custom_call", "partition"]


@pytest.mark.usefixtures("every_cluster")
def test_explain_writes_a_page(saved: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("explain", saved, "--html", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<!DOCTYPE html>") == 1
    assert_says(text, "serving_default", "cluster 0")


def test_another_process_tells_functions_that_it_may_not_call(saved: Path, run_python: Any) -> None:
    arguments = ["explain", str(saved), "--json"]
    script = f"from hostcall_command import commands; commands({arguments!r})"
    first, second = json.loads(run_python(script, HOSTCALL_ROUTE="auto"))
    for explanation, name in ((first, "numpy:unique"), (second, "numpy:sort")):
        (op,) = explanation["script_ops"]
        assert (op["callback"], op["file"]) == (name, "test_cli.py")
        assert "not allowed to import numpy" in explanation["notes"][0]
    assert second["script_ops"][0]["results"][0]["shape"] == "(3,)"


@pytest.mark.usefixtures("every_cluster")
def test_rewrite_writes_a_model_that_computes_the_same(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (changed,) = answer("rewrite", saved, out)["rewritten"]
    assert "partition" in changed
    assert (out / "assets" / "note.txt").read_text() == "kept"
    old, new = tf.saved_model.load(str(saved)), tf.saved_model.load(str(out))
    same_sum(new.partitioned, old.partitioned)
    same_sum(new.signatures["serving_default"], old.partitioned)
    np.testing.assert_array_equal(new.whole(X)["sorted"], [2.0, 2.0, 4.0])
    for model in (new, old):
        model.scale.assign(3.0)
    same_sum(new.partitioned, old.partitioned)
    (explained, _) = answer("explain", out)
    assert len([f for f in explained["functions"] if f["mode"] == "compiled"]) == 2


def test_rewrite_tells_what_it_has_done(saved: Path, tmp_path: Path) -> None:
    result = run("rewrite", saved, tmp_path / "out")
    assert "Rewritten: __inference_partitioned_" in result.stdout
    again = run("rewrite", tmp_path / "out", tmp_path / "again")
    assert "nothing: no compiled function has to be partitioned" in again.stdout


def same_sum(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one(X)["sum"], other(X)["sum"], rtol=1e-6)


def test_rewrite_by_a_route(saved: Path, tmp_path: Path) -> None:
    changed = answer("rewrite", saved, tmp_path / "partition", "--route", "partition")["rewritten"]
    assert len(changed) == 2
    result = run("rewrite", saved, tmp_path / "whole", "--route", "custom_call")
    assert result.exit_code == 1
    assert "shape of result 0 is not known" in result.stderr
    assert not (tmp_path / "whole").exists()


@pytest.mark.parametrize("command", ["explain", "rewrite"])
def test_what_is_no_saved_model_is_an_error_of_one_line(command: str, tmp_path: Path) -> None:
    for name, content in (("broken", b"\xff\xff no message"), ("empty", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").write_bytes(content)
    out = [tmp_path / "out"] if command == "rewrite" else []
    for name, words in [
        ("missing", "is not a directory"),
        (".", "holds no SavedModel"),
        ("broken", "holds no SavedModel"),
        ("empty", "without a graph"),
    ]:
        assert words in refusal(command, tmp_path / name, *out)


def refusal(*args: Any) -> str:
    """Run a command that fails, and return the line that says why."""
    result = run(*args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_an_unknown_signature_is_an_error_that_lists_the_known_ones(saved: Path) -> None:
    said = refusal("explain", saved, "--signature", "serve")
    assert "no signature 'serve'; it has 'serving_default', 'whole'" in said


def test_nothing_is_overwritten(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert "exists already" in refusal("rewrite", saved, out)
    assert list(out.iterdir()) == []


def test_a_page_that_cannot_be_written(saved: Path, tmp_path: Path) -> None:
    said = refusal("explain", saved, "--html", tmp_path / "no" / "page.html")
    assert "No such file or directory" in said


@pytest.mark.parametrize(
    "arguments",
    [[], ["explain"], ["rewrite", "a"], ["rewrite", "a", "b", "--route", "x"], ["cure"]],
)
def test_wrong_usage_has_status_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.output


def test_doctor() -> None:
    report = answer("doctor")
    assert (report["hostcall"], report["tensorflow"]) == (hostcall.__version__, tf.__version__)
    built = report["built_against"]["tensorflow"]
    assert built.split(".")[:2] == tf.__version__.split(".")[:2]
    assert report["mismatches"] == []
    assert (report["enabled"], report["route"]) == (True, "auto")
    assert report["targets"] == {"hostcall": ["Host", "CUDA"], "hostcall_native": ["Host"]}
    assert report["calls"] == {"TensorFlow": "", "JAX": ""}
    text = run("doctor").stdout
    assert_says(text, f"built against {built}", "hostcall on Host", "TensorFlow: it works.")
    # A name or a path stays whole.
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in text.splitlines())


def test_a_command_prints_no_notes_of_tensorflows() -> None:
    # With a TensorFlow that was not tested, hostcall says so.
    untested = "ignore:hostcall was tested with TensorFlow:RuntimeWarning"
    command = [sys.executable, "-W", untested, "-m", "hostcall", "doctor"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    ended = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[-1] == "  JAX: it works."


def test_doctor_says_what_is_wrong_with_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor, "_next", lambda x: x)
    assert answer("doctor")["calls"]["TensorFlow"] == "it returns 2.0, and not 3.0"
    monkeypatch.setattr(_doctor, "_next", lambda x: x.missing)
    calls = answer("doctor")["calls"]
    assert all("AttributeError" in fault and "missing" in fault for fault in calls.values())
    assert "JAX: it raises " in run("doctor").stdout


def test_doctor_lists_jaxs_names_and_patches() -> None:
    report = answer("doctor")
    assert report["jax"] == {"version": metadata.version("jax"), "problem": None}
    names = [name for name in report["names"] if name["framework"] == "JAX"]
    assert "jax._src.core.Primitive" in {name["name"] for name in names}
    assert all(name["found"] for name in names)
    patches = [patch for patch in report["patches"] if patch["framework"] == "JAX"]
    assert all(patch["installed"] for patch in patches)
    text = run("doctor").stdout
    assert f"JAX: found {metadata.version('jax')}. hostcall.jax works with it." in text
    assert "What hostcall replaces in JAX" in text


def test_doctor_lists_each_name_if_asked() -> None:
    names = answer("doctor")["names"]
    text = " ".join(run("doctor", "--names").stdout.split())  # which wraps its lines
    assert [name["name"] for name in names if f"{name['name']}: found" not in text] == []
    assert f"{names[0]['name']}: found" not in run("doctor").stdout


def test_doctor_says_why_hostcall_jax_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hostcall.jax", None)
    assert "hostcall.jax" in answer("doctor")["jax"]["problem"]
    assert "works with it" not in run("doctor").stdout


@pytest.mark.parametrize("version", ["0.13", None])
def test_doctor_without_a_tried_jax(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = metadata.version

    def version_of(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version if name == "jax" else found(name)

    monkeypatch.setattr(metadata, "version", version_of)
    if version is None:
        assert answer("doctor")["jax"] == {"version": None, "problem": None}
        said = "JAX is not installed. Only hostcall.jax needs it."
    else:
        said = "JAX: found 0.13. hostcall.jax was tested with JAX 0.8 to "
    assert said in " ".join(run("doctor").stdout.split())


_DOCTOR = """
import runpy, sys
sys.argv = ["hostcall", "doctor", "--json"]
runpy.run_module("hostcall", run_name="__main__")
"""


def test_doctor_of_a_process_where_hostcall_is_off(run_python: Any) -> None:
    off = {"HOSTCALL_DISABLE": "1", "HOSTCALL_ROUTE": "partition"}
    report = json.loads(run_python(_DOCTOR, **off))
    assert (report["enabled"], report["route"], report["targets"]) == (False, "partition", {})
    assert report["environment"]["HOSTCALL_DISABLE"] == "1"


class Checking:
    """Finds no module, and checks the versions where hostcall's part of the command is imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "hostcall._tools.doctor":
            _versions.check()


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_where_hostcall_cannot_be_imported(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dataclasses.replace(_versions.found(), tensorflow="2.99.0")
    monkeypatch.setattr(_versions, "found", lambda: found)
    monkeypatch.delitem(sys.modules, "hostcall._tools.doctor", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Checking(), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["hostcall", "doctor", *(["--json"] if as_json else [])])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    text = json.loads(said.out)["error"] if as_json else said.err
    assert_says(text, "found 2.99.0", "pip install")
    assert "Traceback" not in said.err


_HELP = """
import sys, hostcall_command
sys.argv = ["hostcall", *sys.argv[1:]]
try:
    hostcall_command.main()
finally:
    print("imported:", *sorted({"tensorflow", "hostcall", "numpy"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "Show what becomes of the functions of SAVED_MODEL"),
        (["explain", "--help"], "The signature to explain"),
        (["rewrite", "-h"], "[auto|custom_call|partition]"),
        (["doctor", "--help"], "what is switched on, and try a call."),
        (["--version"], hostcall.__version__),
    ],
)
def test_help_comes_without_tensorflow(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-c", _HELP, *arguments]
    wide = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, env=wide, capture_output=True, text=True, check=True)
    assert said in " ".join(done.stdout.split())
    assert done.stdout.endswith("imported:\n")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_help_cuts_no_sentence_off(width: int) -> None:
    shown = " ".join(CliRunner().invoke(commands, ["--help"], terminal_width=width).output.split())
    for command in commands.commands.values():
        assert command.help is not None
        first, _, _ = command.help.partition("\n\n")
        assert " ".join(first.split()) in shown
    assert "..." not in shown.replace("[ARGS]...", "")


def test_the_routes_of_the_command_are_those_of_hostcall() -> None:
    assert ROUTES == requested_routes.ROUTES


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("hostcall")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "doctor" in done.stdout

"""hostcall._versions: which set of extension modules is chosen, and the error where none fits."""

import importlib
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import hostcall
from hostcall import _versions
from tests.support.helpers import assert_says


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The folders of a hostcall whose wheel has the sets of three minor versions."""
    for minor in ("2_9", "2_21", "2_20"):
        folder = tmp_path / "installed" / "_built" / f"tensorflow_{minor}"
        folder.mkdir(parents=True)
        (folder / "_which.py").write_text(f"chosen_minor = {minor!r}\n")
    found = [str(tmp_path / "sources"), str(tmp_path / "installed")]
    monkeypatch.setattr(hostcall, "__path__", found)
    monkeypatch.delitem(sys.modules, "hostcall._which", raising=False)
    return found


def test_the_build_of_this_process_is_that_of_its_tensorflow() -> None:
    chosen = _versions.built_sets()[".".join(tf.__version__.split(".")[:2])]
    assert Path(hostcall.serving_library()).parent == chosen
    assert Path(importlib.import_module("hostcall._tensorflow").__file__ or "").parent == chosen


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        *(("2.20.0", "2_20"), ("2.21.0", "2_21"), ("2.21.7", "2_21"), ("2.9.3", "2_9")),
        *(("2.21.0-rc1", "2_21"), ("2.21.0-dev20260101", "2_21")),
    ],
)
def test_the_minor_version_chooses(places: list[str], version: str, minor: str) -> None:
    assert list(_versions.built_sets()) == ["2.9", "2.20", "2.21"]
    _versions.choose(version)
    assert importlib.import_module("hostcall._which").chosen_minor == minor
    chosen = list(places)
    _versions.choose(version)
    assert places == chosen


@pytest.mark.parametrize("version", ["2.19.1", "2.22.0-dev20261101", "3.21.0", "2.2.0"])
def test_a_tensorflow_without_modules_says_what_to_install(places: list[str], version: str) -> None:
    before = list(places)
    with pytest.raises(ImportError) as caught:
        _versions.choose(version)
    assert_says(
        caught.value,
        f"TensorFlow: built for 2.9, 2.20 and 2.21, found {version}\n",
        "pip install 'tensorflow-cpu==2.21.*'",
        "pip install 'tensorflow[and-cuda]==2.21.*'",
        "--no-build-isolation",
    )
    assert caught.value.name == "hostcall"
    assert places == before


def test_one_set_is_named_alone(places: list[str], tmp_path: Path) -> None:
    for minor in ("2_9", "2_21"):
        (tmp_path / "installed" / "_built" / f"tensorflow_{minor}").rename(tmp_path / minor)
    with pytest.raises(ImportError, match=r"built for 2\.20, found 2\.18\.0"):
        _versions.choose("2.18.0")


def test_a_source_tree_that_was_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hostcall, "__path__", [str(tmp_path)])
    with pytest.raises(ImportError, match="hostcall was not built") as caught:
        _versions.choose("2.21.0")
    assert "make clean venv" in str(caught.value)
    assert caught.value.name == "hostcall"

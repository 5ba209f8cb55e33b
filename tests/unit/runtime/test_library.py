"""hostcall_runtime._library: finding and loading the extension modules."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import hostcall
from hostcall_runtime._library import candidates, load


@pytest.mark.parametrize("name", ["hostcall_runtime._runtime", "hostcall._tensorflow"])
def test_loads_each_module_once(name: str) -> None:
    module = load(name)
    assert module.__name__ == name
    assert module is load(name)
    assert module.__file__ is not None
    assert Path(module.__file__) in candidates(name)


def test_candidates_are_all_suffixes_in_all_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directories = [tmp_path / "sources", tmp_path / "built"]
    monkeypatch.setattr(hostcall, "__path__", [str(directory) for directory in directories])
    assert candidates("hostcall._module") == [
        directory / f"_module{suffix}" for directory in directories for suffix in EXTENSION_SUFFIXES
    ]


def test_a_missing_module_lists_the_paths_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hostcall, "__path__", [*hostcall.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match=r"hostcall\._missing was not found") as caught:
        load("hostcall._missing")
    message = str(caught.value)
    for path in candidates("hostcall._missing"):
        assert f"    {path}\n" in message
    assert str(tmp_path) in message
    assert f"({sys.version_info.major}.{sys.version_info.minor})" in message
    assert "make clean venv" in message
    assert caught.value.name == "hostcall._missing"
    assert caught.value.path is None


def test_a_damaged_module_gives_the_linkers_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / f"_damaged{EXTENSION_SUFFIXES[0]}"
    path.write_bytes(b"not a library")
    monkeypatch.setattr(hostcall, "__path__", [*hostcall.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match=r"hostcall\._damaged could not be loaded") as caught:
        load("hostcall._damaged")
    message = str(caught.value)
    assert f"    {path}\n" in message
    assert "file too short" in message
    assert "pip install --force-reinstall --no-cache-dir 'hostcall[cpu]'" in message
    assert caught.value.name == "hostcall._damaged"
    assert caught.value.path == str(path)


def test_a_module_that_fails_to_start_gives_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A real library that is no extension module: it loads, but has no PyInit function.
    library = load("hostcall_runtime._runtime").__file__
    assert library is not None
    path = tmp_path / f"_other{EXTENSION_SUFFIXES[0]}"
    path.write_bytes(Path(library).read_bytes())
    monkeypatch.setattr(hostcall, "__path__", [*hostcall.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match=r"hostcall\._other could not be loaded") as caught:
        load("hostcall._other")
    assert "PyInit__other" in str(caught.value)

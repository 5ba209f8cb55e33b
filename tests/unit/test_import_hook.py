"""hostcall._control: what is done when a module is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from hostcall._control import when_imported

NAME = "watched_package"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / NAME
    directory.mkdir()
    (directory / "__init__.py").write_text("from watched_package.part import VALUE\n")
    (directory / "part.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield directory
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


@pytest.mark.parametrize("imported", [NAME, f"{NAME}.part"])
def test_it_is_done_once_when_the_whole_package_is_imported(package: Path, imported: str) -> None:
    values: list[int] = []
    for factor in (1, 10):
        when_imported(NAME, lambda factor=factor: values.append(factor * sys.modules[NAME].VALUE))
    importlib.import_module(imported)
    assert sorted(values) == [1, 10]
    importlib.reload(sys.modules[NAME])
    assert sorted(values) == [1, 10]
    spec = sys.modules[NAME].__spec__
    assert spec is not None
    assert type(spec.loader) is SourceFileLoader  # the one that it would have
    assert "exec_module" not in vars(spec.loader)


def test_neither_a_search_nor_an_import_that_fails_counts(package: Path) -> None:
    done: list[str] = []
    when_imported(NAME, lambda: done.append("done"))
    assert importlib.util.find_spec(NAME) is not None
    (package / "part.py").write_text("raise OSError('not yet')\n")
    with pytest.raises(OSError, match="not yet"):
        importlib.import_module(NAME)
    assert not done
    (package / "part.py").write_text("VALUE = 2  # now it works\n")
    importlib.import_module(NAME)
    assert done == ["done"]


def test_a_module_that_is_nowhere_is_not_found() -> None:
    finders = list(sys.meta_path)
    when_imported("hostcall_knows_no_such_module", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="hostcall_knows_no_such_module"):
        importlib.import_module("hostcall_knows_no_such_module")
    sys.meta_path[:] = finders

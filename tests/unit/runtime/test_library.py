"""hostcall_runtime._library: finding and loading the extension modules."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import hostcall
from hostcall_runtime._library import candidates, load
from tests.support.helpers import assert_says


@pytest.mark.parametrize("name", ["hostcall_runtime._runtime", "hostcall._tensorflow"])
def test_loads_each_module_once(name: str) -> None:
    module = load(name)
    assert module.__name__ == name
    assert module is load(name)
    assert module.__file__ is not None
    assert Path(module.__file__) in candidates(name)


def test_a_missing_module_lists_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hostcall, "__path__", [*hostcall.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match=r"hostcall\._missing was not found") as caught:
        load("hostcall._missing")
    tried = [Path(at, f"_missing{end}") for at in hostcall.__path__ for end in EXTENSION_SUFFIXES]
    assert candidates("hostcall._missing") == tried
    version = f"({sys.version_info.major}.{sys.version_info.minor})"
    assert_says(caught.value, *(f"    {path}\n" for path in tried), version, "make clean venv")
    assert (caught.value.name, caught.value.path) == ("hostcall._missing", None)


# A real library that is not an extension module: it loads, but has no PyInit function.
_LIBRARY = Path(str(load("hostcall_runtime._runtime").__file__)).read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"not a library", "file too short"), (_LIBRARY, "PyInit__damaged")],
    ids=["no library", "no extension module"],
)
def test_a_damaged_module_gives_the_linkers_words(
    content: bytes, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / f"_damaged{EXTENSION_SUFFIXES[0]}"
    path.write_bytes(content)
    monkeypatch.setattr(hostcall, "__path__", [*hostcall.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match=r"hostcall\._damaged could not be loaded") as caught:
        load("hostcall._damaged")
    reinstall = "pip install --force-reinstall --no-cache-dir 'hostcall[cpu]'"
    assert_says(caught.value, f"    {path}\n", reason, reinstall)
    assert (caught.value.name, caught.value.path) == ("hostcall._damaged", str(path))


# Modules hand each other pointers in capsules, whose names are checked.

runtime = load("hostcall_runtime._runtime")
bindings = load("hostcall._tensorflow")

# What takes a capsule, and the name that it wants.
TAKERS: dict[str, Any] = {
    "hostcall.HostApi": runtime.install,
    "hostcall.RuntimeApi": bindings.install,
    "xla._CUSTOM_CALL_TARGET": lambda capsule: bindings.register_handler(capsule, "never"),
}
CAPSULES: dict[str, Any] = {
    "hostcall.HostApi": bindings.host_api,
    "hostcall.RuntimeApi": runtime.api,
    "xla._CUSTOM_CALL_TARGET": runtime.cuda_handler,
}


@pytest.mark.parametrize("given", CAPSULES)
@pytest.mark.parametrize("wanted", TAKERS)
def test_a_capsule_of_another_name_is_refused(wanted: str, given: str) -> None:
    if wanted == given:
        assert f'"{given}"' in repr(CAPSULES[given]())
        return
    with pytest.raises(TypeError) as caught:
        TAKERS[wanted](CAPSULES[given]())
    message = str(caught.value)
    assert f"wants a capsule named {wanted}, and was given one named {given}" in message
    assert "install hostcall again" in message

"""The search for the extension modules, and their loading."""

import importlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

REBUILD = """\
    pip install --force-reinstall --no-cache-dir 'hostcall[cpu]'
    pip install --force-reinstall --no-cache-dir 'hostcall[gpu]'    # with an NVIDIA GPU
    make clean venv                                                 # in a checkout of hostcall"""

_NOT_FOUND = """\
hostcall's {what} {name} was not found. Most likely Python found hostcall in a source tree
where it was not built, or it was built by another Python than this one ({python}). Tried:

{paths}

Build it with one of

{rebuild}"""

_NOT_LOADED = """\
hostcall's extension module {name} could not be loaded, although its file is there:

    {path}

The dynamic linker, or the module itself, says:

    {reason}

Most likely it was built against another TensorFlow than the one installed beside it, or the file is
damaged. Build it again with one of

{rebuild}"""


def load(name: str) -> ModuleType:
    """Load an extension module, or raise an ImportError with the reason and how to build it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _explained(name, error) from error


def candidates(name: str) -> list[Path]:
    """List the files that could hold an extension module; an editable install has two folders."""
    package, _, module = name.rpartition(".")
    directories = map(Path, sys.modules[package].__path__)
    return [path / f"{module}{suffix}" for path in directories for suffix in EXTENSION_SUFFIXES]


def file_beside(package: str, name: str) -> Path:
    """Find a shared library that is not a Python module, beside the modules of a package."""
    tried = [Path(path, name) for path in sys.modules[package].__path__]
    found = next((path for path in tried if path.is_file()), None)
    if found is None:
        raise FileNotFoundError(_not_found("library", name, tried))
    return found


def _explained(name: str, error: ImportError) -> ImportError:
    tried = candidates(name)
    found = [path for path in tried if path.is_file()]
    if found:
        message = _NOT_LOADED.format(name=name, path=found[0], reason=error, rebuild=REBUILD)
        return ImportError(message, name=name, path=str(found[0]))
    return ImportError(_not_found("extension module", name, tried), name=name)


def _not_found(what: str, name: str, tried: list[Path]) -> str:
    python = "{}.{}".format(*sys.version_info)
    paths = "\n".join(f"    {path}" for path in tried)
    return _NOT_FOUND.format(what=what, name=name, python=python, paths=paths, rebuild=REBUILD)

"""Native code for tests, compiled when it is first wanted."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def functions() -> ctypes.CDLL:
    """The library of functions.c."""
    return _loaded("cc", "functions.c", "-std=c11")


@functools.cache
def functions_with_gil() -> ctypes.PyDLL:
    """The same library, whose functions hold Python's lock."""
    return ctypes.PyDLL(functions()._name)


def headers() -> str:
    """The directory of XLA's headers for handlers: ours where TensorFlow installs none."""
    import tensorflow as tf

    installed = Path(tf.sysconfig.get_include())
    return str(installed) if (installed / "xla/ffi/api/ffi.h").exists() else headers_of_ours()


def headers_of_ours() -> str:
    """The directory of those that hostcall is built with, which every TensorFlow and JAX takes."""
    return str(HERE.parents[2] / "third_party")


@functools.cache
def handlers(include: str) -> ctypes.CDLL:
    """The library of handlers.cc, with XLA's headers of a directory."""
    return _loaded("c++", "handlers.cc", "-std=c++17", f"-isystem{include}")


def build(compiler: str, source: Path, target: Path, *options: str) -> Path:
    found = shutil.which(compiler)
    assert found is not None, f"the tests want a C and a C++ compiler: {compiler}"
    subprocess.run([found, str(source), "-o", str(target), *options], check=True)
    return target


def _loaded(compiler: str, source: str, *options: str) -> ctypes.CDLL:
    # Loaded libraries stay until the process ends, and so does the directory.
    folder = Path(_directory().name)
    library = folder / f"{len(list(folder.iterdir()))}.so"
    build(compiler, HERE / source, library, "-O1", "-shared", "-fPIC", *options)
    return ctypes.CDLL(str(library))


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hostcall_tests_")

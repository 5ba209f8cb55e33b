"""The extension modules of a build, also those that are never installed.

The environment variable HOSTCALL_BUILD names a CMake build directory, a sanitized one say, whose
modules are used then instead of the installed ones.
"""

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def load_file(name: str, path: Path) -> ModuleType:
    """The extension module in a file, under a name, of which nothing else may be loaded."""
    if name not in sys.modules:
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[name] = module
    module = sys.modules[name]
    assert module.__file__ == str(path), f"{name} is loaded from {module.__file__}"
    return module


def module_file(build: Path, part: str) -> Path:
    """The file of the module `part`, a path below the build without its ending."""
    return build / (part + sysconfig.get_config_var("EXT_SUFFIX"))


def _find_build() -> Path:
    """The build directory that has the modules of tests."""
    named = [Path(os.environ["HOSTCALL_BUILD"])] if "HOSTCALL_BUILD" in os.environ else []
    # The sessions of nox for a version of TensorFlow set the variable, and build into this folder.
    folder = f"tf{os.environ['TENSORFLOW']}" if os.environ.get("TENSORFLOW") else ""
    python = "cp{}{}-*".format(*sys.version_info)
    builds = named or sorted((ROOT / "build" / folder).glob(python))
    found = [build for build in builds if module_file(build, "tests/cpp/_frames").is_file()]
    if not found:
        raise ImportError(f"tests/cpp is not built in any of {list(map(str, builds))}: make venv")
    return found[-1].resolve()


BUILD = _find_build()

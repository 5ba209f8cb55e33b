"""The tests in environments of other versions: `.venv/bin/nox --list` names them.

A session takes another Python with `--force-python 3.11`, and arguments of pytest behind `--`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

sys.path.append(str(Path(__file__).parent))  # nox leaves it out
from tools.requirements import requirements
from wheels import interpreters

nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

# Those of pyenv need not be on the PATH.
_FOUND = filter(None, map(interpreters.find, ("3.11", "3.12", "3.13", "3.14")))
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *(str(one.parent) for one in _FOUND)])

TENSORFLOWS = ["2.19", "2.20", "2.21", "nightly"]
JAXES = ["0.8", "0.9", "0.10", "0.11", "0.12", "newest"]
# An editable installation: Python files are used where they are, so only C++ is built again.
_EDITABLE = ("--no-build-isolation", "--no-deps", "--editable", ".")


@nox.session(default=False)
@nox.parametrize("version", TENSORFLOWS, ids=TENSORFLOWS)
def tensorflow(session: nox.Session, version: str) -> None:
    """Run all tests, or those that pytest's arguments name, with a version of TensorFlow."""
    session.install(*requirements(["test", "dev"], tensorflow=version))
    session.install(*_EDITABLE, f"--config-settings=build-dir=build/tf{version}/{{wheel_tag}}")
    environment = {"TENSORFLOW": version, "TF_CPP_MIN_LOG_LEVEL": "2"}
    if session.posargs:
        session.run("pytest", "-q", *session.posargs, env=environment)
    else:
        ready = [f"BIN={session.bin}", "READY=yes"]
        session.run("make", "test", "PART=all", *ready, env=environment, external=True)


@nox.session(default=False)
@nox.parametrize("version", JAXES, ids=JAXES)
def jax(session: nox.Session, version: str) -> None:
    """Run JAX's tests where TensorFlow is not installed, with a version of JAX."""
    wanted = "jax" if version == "newest" else f"jax=={version}.*"
    session.install(*requirements(["jax", "test-jax"], tensorflow="none"), wanted)
    # The runtime alone is built, once for each Python.
    alone = "--config-settings=cmake.define.HOSTCALL_RUNTIME_ALONE=ON"
    session.install(*_EDITABLE, "--config-settings=build-dir=build/jax/{wheel_tag}", alone)
    tests = ["tests/jax", "tests/exported/test_runner.py", "tests/unit/mlir"]
    session.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *session.posargs, *tests)


@nox.session(default=False)
def executors(session: nox.Session) -> None:
    """Run the tests of executors that few install: Ray and MPI."""
    session.install(*requirements(["test", "dev", "executors"]))
    session.install(*_EDITABLE, "--config-settings=build-dir=build/{wheel_tag}")
    session.run("pytest", "-q", "tests/executors_heavy", *session.posargs)

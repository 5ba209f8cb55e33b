"""Checks that other processes find the function, by its pickle and by its qualified name."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from hostcall._functions import declarations
from hostcall._functions.native_code import Native
from hostcall._saved.functions import qualified_name, reason
from hostcall._tools.check.trial import Outcome, SkipError, Trial, skip_if
from hostcall_runtime._executor_errors import pickler_of
from hostcall_runtime._executors import has_threads
from hostcall_runtime._processes import sendable

_SECONDS = 120

# Programs for a fresh process, which import nothing of hostcall's.
_PATH = """\
from __future__ import annotations
import hashlib, importlib, json, operator, pickle, sys
sys.path[:] = json.loads(sys.argv[1])
"""
_UNPICKLE = "pickle.load(sys.stdin.buffer)"
_FIND = """
module = importlib.import_module(sys.argv[2])
code = _all_code(module) | {sys.argv[3]: _code_of(operator.attrgetter(sys.argv[3])(module))}
print()
print(json.dumps(code))
"""

# The code in each module, as a fresh process finds it. It is kept because an import may take
# seconds, and tests check many functions of a module.
_known: dict[tuple[object, ...], dict[str, str]] = {}


class FreshProcessError(Exception):
    """Error: a fresh process cannot read or find the function, for the reason in the text."""


def _code_of(found: Any) -> str:
    """Return a hash of a function's code, or a note that it has none."""
    found = getattr(found, "__hostcall_function__", found)
    code = getattr(getattr(found, "__func__", found), "__code__", None)
    if code is None:
        return "no code" if callable(found) else "no function"
    text = repr((code.co_code, code.co_names, code.co_varnames))
    return hashlib.sha256(text.encode()).hexdigest()


def _all_code(namespace: Any, place: str = "", depth: int = 2) -> dict[str, str]:
    """Return the code of each function in a module, or in a class, by its qualified name."""
    found: dict[str, str] = {}
    for name, value in [*vars(namespace).items()]:
        if isinstance(value, type) and depth:
            found |= _all_code(value, f"{place}{name}.", depth - 1)
        else:
            found[place + name] = _code_of(value)
    return found


def _code_at(module: str, name: str) -> str:
    """Return the `_code_of` the function that a fresh process finds by module and name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    version = os.stat(file).st_mtime_ns if file and os.path.exists(file) else None
    key = (module, version, *sys.path)
    if name not in _known.get(key, {}):
        program = inspect.getsource(_code_of) + inspect.getsource(_all_code) + _FIND
        _known[key] = json.loads(_run(program, module, name).splitlines()[-1])
    return _known[key][name]


def _run(program: str, *arguments: str, given: bytes = b"") -> str:
    """Run a program in a fresh process; raise a FreshProcessError if it fails, or TimeoutError."""
    command = [sys.executable, "-c", _PATH + program, json.dumps(sys.path), *arguments]
    try:
        ended = subprocess.run(
            command, input=given, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"a fresh process takes more than {_SECONDS} seconds") from None
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        status = f"the process ends with status {ended.returncode}"
        raise FreshProcessError(said[-1] if said and ended.returncode == 1 else status)
    return ended.stdout.decode()


def pickling(trial: Trial) -> Iterator[Outcome]:
    """Check that the executor's processes can read the function."""
    provider = trial.subject.options.executor
    if provider is None:
        raise SkipError("no executor is declared")
    executor = provider.executor()
    skip_if(has_threads(executor), "the executor has threads of this process")
    function = trial.subject.function
    try:
        packed = pickler_of(executor).dumps(sendable(function))
    except Exception as error:  # pickling runs user code
        what = f"it cannot be sent to processes of the executor: {type(error).__name__}: {error}"
        cause = f"they find functions by module and name, and this one is {reason(function)}"
        line = f"def {trial.subject.name}(...): ...    # at the top of a module"
        yield trial.finding(what, cause, line)
        return
    try:
        _run(_UNPICKLE, given=packed)
    except FreshProcessError as error:
        what = f"a fresh process cannot read it: {error}"
        cause = "its module is made while the program runs, or refers to what is made then"
        line = f"from functions import {trial.subject.name}    # of a module of its own"
        yield trial.finding(what, cause, line)


def name(trial: Trial) -> Iterator[Outcome]:
    """Check that a fresh process finds the same function under its qualified name."""
    function = trial.subject.user_function
    given = trial.subject.user.given_name or declarations.name_of(function)
    skip_if(
        given is not None,
        f"it is known as {given!r}, and the process that loads it says which function that is",
    )
    skip_if(isinstance(function, Native), "native code is found by its library")
    place = qualified_name(function)
    if place is None:
        raise SkipError(
            f"it has no qualified name ({reason(function)}), so that saved models and exported "
            f'programs cannot call it: hostcall.register({trial.subject.name}, "name") gives it one'
        )
    module, _, qualname = place.partition(":")
    line = f'hostcall.register({trial.subject.name}, "{place}")    # in each process'
    try:
        found = _code_at(module, qualname)
    except FreshProcessError as error:
        what = f"a fresh process does not find {place}: {error}"
        cause = "its module cannot be imported by this name, or defines it only in this process"
        yield trial.finding(what, cause, line)
        return
    if found != _code_of(function):
        what = f"a fresh process finds another function under {place}"
        cause = "it is defined in two ways, and this process took the other one; or was replaced"
        yield trial.finding(what, cause, line)

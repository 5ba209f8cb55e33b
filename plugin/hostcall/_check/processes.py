"""Checks that other processes find the function, by its pickle and by its qualified name."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from hostcall._check.report import Finding, NotChecked
from hostcall._check.trial import Outcome, Trial
from hostcall._functions import named_functions
from hostcall._functions.native_code import NativeCode
from hostcall._saving.functions import qualified_name, reason
from hostcall_runtime._executor_providers import has_threads
from hostcall_runtime._processes import sendable

_SECONDS = 120

_SCRIPT = """
import base64, hashlib, importlib, json, pickle, sys

def code_of(found):
    found = getattr(found, "__hostcall_function__", found)
    found = getattr(found, "__func__", found)
    code = getattr(found, "__code__", None)
    if code is None:
        return "no code" if callable(found) else "no function"
    text = repr((code.co_code, code.co_names, code.co_varnames))
    return hashlib.sha256(text.encode()).hexdigest()

def walk(place, namespace, depth):
    for name, found in [*vars(namespace).items()]:
        if isinstance(found, type) and depth:
            walk(place + name + ".", found, depth - 1)
        else:
            answer[place + name] = code_of(found)

asked = json.load(sys.stdin)
sys.path[:] = asked["path"]
answer = {}
try:
    if "pickle" in asked:
        pickle.loads(base64.b64decode(asked["pickle"]))
    else:
        module = importlib.import_module(asked["module"])
        walk("", module, 2)
        found = module
        for part in asked["name"].split("."):
            found = getattr(found, part)
        answer[asked["name"]] = code_of(found)
except BaseException as error:
    answer["error: " + asked.get("name", "")] = f"{type(error).__name__}: {error}"
print()
print(json.dumps(answer))
"""

# The code in each module, as a fresh process finds it. It is kept because an import may take
# seconds, and tests check many functions of a module.
_known: dict[tuple[object, ...], dict[str, str]] = {}


class FreshProcessError(Exception):
    """Error: a fresh process cannot read or find the function, for the reason in the text."""


def unpickle(packed: bytes) -> None:
    """Make a fresh process read a pickle.

    Raises:
      FreshProcessError: when it cannot.
    """
    answer = _ask(pickle=base64.b64encode(packed).decode())
    if error := answer.get("error: "):
        raise FreshProcessError(error)


def code_at(module: str, name: str) -> str:
    """Return the `code_of` hash of the function that a fresh process finds by module and name.

    Raises:
      FreshProcessError: when it finds nothing.
      TimeoutError: when the import takes too long.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    version = os.stat(file).st_mtime_ns if file and os.path.exists(file) else None
    key = (module, version, *sys.path)
    if name not in _known.get(key, {}):
        answer = _ask(module=module, name=name)
        if error := answer.get(f"error: {name}"):
            raise FreshProcessError(error)
        _known[key] = answer
    return _known[key][name]


def code_of(function: Any) -> str:
    """Return a hash of a function's code, or a note that it has none."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return "no code" if callable(function) else "no function"
    text = repr((code.co_code, code.co_names, code.co_varnames))
    return hashlib.sha256(text.encode()).hexdigest()


def _ask(**asked: str) -> dict[str, str]:
    question = json.dumps({"path": sys.path, **asked})
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            input=question,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"a fresh process takes more than {_SECONDS} seconds") from None
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        raise FreshProcessError(f"the process ends with status {ended.returncode}")
    answer: dict[str, str] = json.loads(lines[-1])
    return answer


# Executors of these libraries send functions by value.
_BY_VALUE = ("loky", "distributed", "ray")


def pickling(trial: Trial) -> Iterator[Outcome]:
    """Check that the executor's processes can read the function."""
    provider = trial.subject.declaration.executor
    if provider is None:
        yield NotChecked("pickling", "no executor is declared")
        return
    executor = provider.executor()
    if has_threads(executor):
        yield NotChecked("pickling", "the executor has threads of this process")
        return
    function = trial.subject.function
    packed = _packed(function, executor)
    if isinstance(packed, Exception):
        what = f"it cannot be sent to processes of the executor: {type(packed).__name__}: {packed}"
        cause = f"they find functions by module and name, and this one is {reason(function)}"
        line = f"def {trial.subject.name}(...): ...    # at the top of a module"
        yield Finding("pickling", what, cause, line)
        return
    try:
        unpickle(packed)
    except FreshProcessError as error:
        what = f"a fresh process cannot read it: {error}"
        cause = "its module is made while the program runs, or refers to what is made then"
        line = f"from functions import {trial.subject.name}    # of a module of its own"
        yield Finding("pickling", what, cause, line)


def name(trial: Trial) -> Iterator[Outcome]:
    """Check that a fresh process finds the same function under its qualified name."""
    function = trial.subject.user_function
    given = trial.subject.declared.given_name or named_functions.name_of(function)
    if given is not None:
        why = f"it is known as {given!r}, and the process that loads it says which function that is"
        yield NotChecked("name", why)
        return
    if isinstance(function, NativeCode):
        yield NotChecked("name", "native code is found by its library")
        return
    place = qualified_name(function)
    if place is None:
        why = (
            f"it has no qualified name ({reason(function)}), so that saved models and exported "
            f'programs cannot call it: hostcall.register({trial.subject.name}, "name") gives it one'
        )
        yield NotChecked("name", why)
        return
    module, _, qualname = place.partition(":")
    line = f'hostcall.register({trial.subject.name}, "{place}")    # in each process'
    try:
        found = code_at(module, qualname)
    except FreshProcessError as error:
        what = f"a fresh process does not find {place}: {error}"
        cause = "its module cannot be imported by this name, or defines it only in this process"
        yield Finding("name", what, cause, line)
        return
    if found != code_of(function):
        what = f"a fresh process finds another function under {place}"
        cause = "it is defined in two ways, and this process took the other one; or was replaced"
        yield Finding("name", what, cause, line)


def _packed(function: Any, executor: Any) -> bytes | Exception:
    """Return the function pickled as the executor sends it, or the error that prevents it."""
    sent = sendable(function)
    try:
        return pickle.dumps(sent)
    except Exception as error:  # pickling runs user code
        standard = isinstance(executor, concurrent.futures.ProcessPoolExecutor)
        library = type(executor).__module__.partition(".")[0]
        if (standard and library not in _BY_VALUE) or not _has_cloudpickle():
            return error
    import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(sent)
    except Exception as error:
        return error
    return packed


def _has_cloudpickle() -> bool:
    return importlib.util.find_spec("cloudpickle") is not None

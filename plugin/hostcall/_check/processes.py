"""Checks that other processes find the function, by its pickle and by its qualified name."""

from __future__ import annotations

import base64
import concurrent.futures
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from hostcall._check import fresh_process
from hostcall._check.trial import Outcome, SkipError, Trial, skip_if
from hostcall._functions import declarations
from hostcall._functions.native_code import Native
from hostcall._saving.functions import qualified_name, reason
from hostcall_runtime._executors import has_threads
from hostcall_runtime._processes import sendable

_SECONDS = 120

# The code in each module, as a fresh process finds it. It is kept because an import may take
# seconds, and tests check many functions of a module.
_known: dict[tuple[object, ...], dict[str, str]] = {}


class FreshProcessError(Exception):
    """Error: a fresh process cannot read or find the function, for the reason in the text."""


def _code_at(module: str, name: str) -> str:
    """Return the `code_of` hash of the function that a fresh process finds by module and name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    version = os.stat(file).st_mtime_ns if file and os.path.exists(file) else None
    key = (module, version, *sys.path)
    if name not in _known.get(key, {}):
        _known[key] = _ask(module=module, name=name)
    return _known[key][name]


def _ask(**asked: str) -> dict[str, str]:
    """Ask a fresh process; raise a FreshProcessError if it finds nothing, or a TimeoutError."""
    try:
        ended = subprocess.run(
            [sys.executable, fresh_process.__file__],
            input=json.dumps({"path": sys.path, **asked}),
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
    if error := answer.get("error"):
        raise FreshProcessError(error)
    return answer


# Executors of these libraries send functions by value.
_BY_VALUE = ("loky", "distributed", "ray")


def pickling(trial: Trial) -> Iterator[Outcome]:
    """Check that the executor's processes can read the function."""
    provider = trial.subject.options.executor
    if provider is None:
        raise SkipError("no executor is declared")
    executor = provider.executor()
    skip_if(has_threads(executor), "the executor has threads of this process")
    function = trial.subject.function
    sent = sendable(function)
    try:
        packed = _packed(sent, executor)
    except Exception as error:  # pickling runs user code
        what = f"it cannot be sent to processes of the executor: {type(error).__name__}: {error}"
        cause = f"they find functions by module and name, and this one is {reason(function)}"
        line = f"def {trial.subject.name}(...): ...    # at the top of a module"
        yield trial.finding(what, cause, line)
        return
    try:
        _ask(pickle=base64.b64encode(packed).decode())
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
    if found != fresh_process.code_of(function):
        what = f"a fresh process finds another function under {place}"
        cause = "it is defined in two ways, and this process took the other one; or was replaced"
        yield trial.finding(what, cause, line)


def _packed(sent: Any, executor: object) -> bytes:
    """Return what the executor sends, pickled as it does it."""
    try:
        return pickle.dumps(sent)
    except Exception:
        standard = isinstance(executor, concurrent.futures.ProcessPoolExecutor)
        library = type(executor).__module__.partition(".")[0]
        without = importlib.util.find_spec("cloudpickle") is None
        if (standard and library not in _BY_VALUE) or without:
            raise
    import cloudpickle

    return bytes(cloudpickle.dumps(sent))

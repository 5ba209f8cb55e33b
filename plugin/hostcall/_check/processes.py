"""Checks that other processes find the function: by its name, or as a pickle."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import pickle
from collections.abc import Iterator
from typing import Any

from hostcall._check import fresh_process
from hostcall._check.facts import Finding, NotChecked
from hostcall._check.fresh_process import FreshProcessError
from hostcall._check.trial import Outcome, Trial
from hostcall._functions import named_functions
from hostcall._functions.native.native_code import NativeCode
from hostcall._saving.qualified_names import qualified_name, reason
from hostcall_runtime._executor_providers import has_threads
from hostcall_runtime._sent_functions import sendable

# Executors of these send functions by value.
_BY_VALUE = ("loky", "distributed", "ray")


def pickling(trial: Trial) -> Iterator[Outcome]:
    """The executor's processes can read the function."""
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
        fresh_process.unpickle(packed)
    except FreshProcessError as error:
        what = f"a fresh process cannot read it: {error}"
        cause = "its module is made while the program runs, or refers to what is made then"
        line = f"from functions import {trial.subject.name}    # of a module of its own"
        yield Finding("pickling", what, cause, line)


def name(trial: Trial) -> Iterator[Outcome]:
    """A fresh process finds the same function under its qualified name."""
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
        found = fresh_process.code_at(module, qualname)
    except FreshProcessError as error:
        what = f"a fresh process does not find {place}: {error}"
        cause = "its module cannot be imported by this name, or defines it only in this process"
        yield Finding("name", what, cause, line)
        return
    if found != fresh_process.code_of(function):
        what = f"a fresh process finds another function under {place}"
        cause = "it is defined in two ways, and this process took the other one; or was replaced"
        yield Finding("name", what, cause, line)


def _packed(function: Any, executor: Any) -> bytes | Exception:
    """The function as it is sent, or why it cannot be."""
    sent = sendable(function)
    try:
        return pickle.dumps(sent)
    except Exception as error:  # pickling runs code of the user's
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

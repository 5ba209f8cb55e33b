"""`hostcall worker`: what its options mean, and a worker's life."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Callable, Sequence

from hostcall import _control
from hostcall._saving import functions
from hostcall._serving.listening import ListeningError, listening_at
from hostcall._serving.worker import Worker, exit_now


def run(
    path: str | None,
    control: int | None,
    allowed: Sequence[str],
    imported: Sequence[str],
    worker: Worker,
    say: Callable[[str], None],
) -> None:
    """Runs a worker until it shall end; does not return then, but ends the process.

    Args:
      path: of the socket to listen at; None for no such.
      control: the descriptor by which the process that started this one hands clients over.
      allowed: names of modules, as for `hostcall.allow`.
      imported: modules that are imported first; they may call `hostcall.provide`.
      worker: it.
      say: what tells the user that it listens.

    Raises:
      ValueError: when an option makes no sense, an import fails, or it cannot listen.
    """
    if not _control.is_enabled():
        raise ValueError("hostcall: a worker needs what HOSTCALL_DISABLE=1 has switched off.")
    logging.basicConfig(format="%(message)s")
    functions.allow(*allowed)
    for module in imported:
        _import(module)
    with contextlib.ExitStack() as stack:
        if path is not None:
            source = stack.enter_context(listening_at(os.path.abspath(path)))
            listed = ", ".join(functions.allowed()) or "none, so that nothing can be called"
            say(f"hostcall worker: process {os.getpid()} listens at {path}. Allowed: {listed}.")
        else:
            source = stack.enter_context(_handed_over(control))
        worker.run(source, hands_over=path is None)
    # A function that does not end must not keep the process; nor what libraries do at its end.
    exit_now()


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # it may raise anything
        raise ValueError(
            f"hostcall: the import of {module} has failed: {type(error).__name__}: {error}"
        ) from error


def _handed_over(control: int | None) -> socket.socket:
    try:
        source = socket.socket(fileno=control)
        os.set_inheritable(source.fileno(), False)
    except OSError as error:
        raise ListeningError(f"hostcall: descriptor {control} is no connection: {error}") from error
    return source

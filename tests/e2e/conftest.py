"""Fixtures of settings, recordings and executors."""

import concurrent.futures
from collections.abc import Iterator

import pytest

import hostcall
from tests.support.recordings import Machine


@pytest.fixture
def everywhere() -> Iterator[None]:
    """hostcall takes all compiled functions, also those without callbacks."""
    hostcall.configure(functions="all")
    yield
    hostcall.configure(functions="taken")


@pytest.fixture
def machine() -> Machine:
    """A machine that a function measures with."""
    return Machine()


@pytest.fixture
def threads() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """A pool of three threads."""
    with concurrent.futures.ThreadPoolExecutor(3, "executor") as pool:
        yield pool

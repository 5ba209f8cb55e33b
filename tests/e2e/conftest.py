"""Fixtures of recordings and of executors."""

import concurrent.futures
from collections.abc import Iterator

import pytest

from tests.support.recordings import Machine


@pytest.fixture
def machine() -> Machine:
    """A machine that a function measures with."""
    return Machine()


@pytest.fixture
def threads() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """A pool of three threads."""
    with concurrent.futures.ThreadPoolExecutor(3, "executor") as pool:
        yield pool

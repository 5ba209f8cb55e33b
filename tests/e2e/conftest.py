"""Fixtures of settings, recordings and executors."""

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import pytest

import hostcall
from hostcall._compiler import plan
from hostcall._tf.types import FunctionDefLibrary
from tests.support.e2e import written_back


@pytest.fixture(scope="session", autouse=True)
def programs_are_written_as_read() -> Iterator[None]:
    """Functions of all programs, read as objects and written back, keep each of their bytes."""
    make = plan.make

    def checked(library: FunctionDefLibrary, *args: Any, **kwargs: Any) -> plan.Plan:
        written_back.check(library)
        return make(library, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "make", checked)
        yield


@pytest.fixture
def everywhere() -> Iterator[None]:
    """hostcall takes all compiled functions, also those without callbacks."""
    hostcall.configure(functions="all")
    yield
    hostcall.configure(functions="taken")


@pytest.fixture
def threads() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """A pool of three threads."""
    with concurrent.futures.ThreadPoolExecutor(3, "executor") as pool:
        yield pool

"""Fixtures of recordings."""

import pathlib

import pytest

import hostcall  # noqa: F401 - what is tested
from tests.support.recordings import Machine


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    """The path of a recording."""
    return str(tmp_path / "run.hostcall")


@pytest.fixture
def machine() -> Machine:
    """What a function measures with."""
    return Machine()

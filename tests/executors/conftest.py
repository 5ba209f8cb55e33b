"""Ends the executors of a module's tests."""

from collections.abc import Iterator

import pytest

from tests.support import executors


@pytest.fixture(scope="module", autouse=True)
def _none_left() -> Iterator[None]:
    with executors.none_left():
        yield

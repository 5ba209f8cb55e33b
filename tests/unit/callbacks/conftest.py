"""The fixtures that the tests of callbacks share."""

from collections.abc import Iterator

import pytest

import hostcall


@pytest.fixture
def collected_stats() -> Iterator[None]:
    """Calls are counted, from none on."""
    hostcall.stats(reset=True)
    hostcall.collect_stats()
    yield
    hostcall.collect_stats(False)
    hostcall.stats(reset=True)

"""Each test of explanations says itself which route is asked for."""

import pytest


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass

"""What the tests of shipped programs share."""

import pytest


@pytest.fixture(params=[False, True], ids=["whole", "split"])
def split(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)

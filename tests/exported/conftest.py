"""What the tests of exported programs share."""

import pytest


@pytest.fixture(params=[False, True], ids=["whole", "partition"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)

"""The fixtures that the tests of exported programs share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=[False, True], ids=["whole", "partition"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def loaded(tmp_path: Path, partitioned: bool) -> Callable[..., Any]:
    """Saves a program, and loads it as a whole or in parts."""
    from tests.support.exported.programs import load

    return lambda made, **options: load(made, tmp_path, partitioned=partitioned, **options)

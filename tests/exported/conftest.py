"""The fixtures that the tests of exported programs share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostcall_runtime import _permissions


@pytest.fixture(params=[False, True], ids=["whole", "partition"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def loaded(tmp_path: Path, partitioned: bool) -> Callable[..., Any]:
    """Saves a program, and loads it as a whole or in parts."""
    from tests.support.exported.programs import load

    return lambda made, **options: load(made, tmp_path, partitioned=partitioned, **options)


@pytest.fixture(scope="module", autouse=True)
def _allowed() -> Iterator[None]:
    """Allows what the programs of these tests name; test_permissions.py takes that back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_permissions, "_allowed", {})
        _permissions.allow("tests.support.exported", "numpy", "scipy")
        yield

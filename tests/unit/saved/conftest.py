"""The fixtures that the tests of saved graphs share."""

import pytest

from hostcall._functions import declarations
from hostcall_runtime import _permissions


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test allows or names anything for another one."""
    monkeypatch.setattr(_permissions, "_allowed", {})
    monkeypatch.setattr(declarations, "_named", {})

"""SavedModels that were damaged or written with ill will: nothing is imported, nothing is run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.saved import hostile
from tests.support.saved.elsewhere import told
from tests.support.stress.template import Template


@pytest.fixture
def path(fresh_python: Template, tmp_path: Any) -> tuple[str, Any]:
    """Of a SavedModel of another process, and what that computes."""
    path = str(tmp_path / "model")
    return path, told(fresh_python, f"hostile.write({path!r})")


def test_flipped_bits_are_an_error_or_change_nothing(fresh_python: Template, path: Any) -> None:
    (intact, *flipped), imported = told(fresh_python, f"hostile.flip({path[0]!r})")
    assert intact[0] == path[1]
    assert imported == []
    refused = [said for said, _ in flipped if isinstance(said, str)]
    assert all(said == intact[0] for said, _ in flipped if not isinstance(said, str))
    assert 20 < len(refused) < hostile.FLIPS
    # The others are TensorFlow's own: for a token that is no text, or does not say that it is ours.
    reasons = ["altered", "nobody has allowed", "does not exist"]
    reasons += ["well-formed UTF-8", "callback with key="]
    assert [said for said in refused if not any(reason in said for reason in reasons)] == []
    for _, carried in flipped:
        assert "Error" in carried, "a pickle was called without leave"


def test_changed_names_are_an_error(fresh_python: Template, path: Any) -> None:
    names = {
        "os:system": "nobody has allowed to import os",
        "antigravity:geohash": "nobody has allowed to import antigravity",
        f"{hostile.MODULE}:os.system": "is no function of a module",
        f"{hostile.MODULE}:system": "comes from posix, which nobody has allowed",
        f"{hostile.MODULE}:CONSTANT": "is no function, but a int",
        f"{hostile.MODULE}:Scale": "is no function, but a type",
        f"{hostile.MODULE}:missing": "does not exist",
        "__import__('os')": "damaged or altered",
    }
    said, imported, unpickled = told(fresh_python, f"hostile.rename({path[0]!r}, {[*names]!r})")
    for text, expected in zip(said, names.values(), strict=True):
        assert expected in text
    assert imported == []
    assert unpickled == 0

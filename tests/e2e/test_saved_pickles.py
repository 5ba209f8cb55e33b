"""SavedModels that carry functions without names as pickles, and damaged ones: nothing runs."""

import re
from typing import Any

import pytest

from tests.support.helpers import assert_says
from tests.support.saved import hostile, pickled
from tests.support.saved.elsewhere import told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def saved(fresh_python: Template, folder: str) -> Any:
    """The results of two versions, and of a graph of TensorFlow 1, where they were saved."""
    return told(fresh_python, f"pickled.save({folder!r})")


@pytest.fixture(scope="module")
def there(fresh_python: Template, folder: str, saved: Any) -> Any:
    """The results of another process, without permission to unpickle and with it."""
    return told(fresh_python, f"pickled.refused({folder!r})")


def test_what_another_process_computes_is_equal_to_the_bit(saved: Any, there: Any) -> None:
    assert [case for case, got in saved[0].items() if "Error" in got] == []
    assert there["with"] == saved[0]
    assert there["said_with"] == []
    assert there["version_1"] == saved[2]

    # Two versions in one process do not meet.
    assert there["other"] == saved[1]
    assert saved[0]["lambda/plain"] != saved[1]["lambda/plain"]


@pytest.mark.parametrize("when", ["without", "again"])
def test_each_load_without_leave_is_refused(saved: Any, there: Any, when: str) -> None:
    assert there["unpickled"] == 0
    assert there["read_by_loading"] == 0  # but at the first call
    for case in pickled.CASES:
        if case.startswith("named"):
            assert there[when][case] == saved[0][case]
            continue
        leave = "with hostcall.load_options(allow_pickle=True):"
        assert_says(there[when][case], "Error", "the file holds it as a pickle", leave)
        assert re.search(r"\((pickled|functions)\.py:\d+\)", there[when][case])


def test_loading_without_leave_lists_the_functions_in_one_warning(there: Any) -> None:
    (text,) = there["said"]
    assert text.count("  - ") == 6, text
    assert "Scale.scale (pickled.py:" in text
    assert text.count("with hostcall.load_options(allow_pickle=True):") == 1


def test_model_is_saved_again_with_its_pickles(
    fresh_python: Template, folder: str, saved: Any, there: Any
) -> None:
    again = told(fresh_python, f"pickled.saved_again({folder!r})")
    assert again == [saved[0], saved[0]]


def test_altered_pickles_are_refused(
    fresh_python: Template, folder: str, saved: Any, there: Any
) -> None:
    said, unpickled = told(fresh_python, f"pickled.tampered({folder!r})")
    assert unpickled == 0
    assert len(said) == 8
    for text in said[:6]:
        assert "its pickle was altered: the SHA-256 of" in text
    for text in said[6:]:
        assert "its pickle is missing" in text
    for text in said[::2]:
        assert "cannot be loaded with allow_pickle=True" in text


# SavedModels that were damaged or written by an attacker: nothing is imported, nothing is run.


def test_flipped_bits_are_an_error_or_change_nothing(fresh_python: Template, tmp_path: Any) -> None:
    path = str(tmp_path / "model")
    results = told(fresh_python, f"hostile.write({path!r})")
    (intact, *flipped), imported = told(fresh_python, f"hostile.flip({path!r})")
    assert intact[0] == results
    assert imported == []
    refused = [said for said, _ in flipped if isinstance(said, str)]
    assert all(said == intact[0] for said, _ in flipped if not isinstance(said, str))
    assert 20 < len(refused) < hostile.FLIPS
    # The others are TensorFlow's own: for a token that is not a text, or does not say it is ours.
    reasons = ["altered", "not allowed", "does not exist"]
    reasons += ["well-formed UTF-8", "callback with key="]
    assert [said for said in refused if not any(reason in said for reason in reasons)] == []
    for _, carried in flipped:
        assert "Error" in carried, "a pickle was called without permission"

"""Functions of SavedModels have graph mode's values and errors in another process, too."""

from typing import Any

import pytest

from tests.support.exported.failing import FAILING
from tests.support.saved.elsewhere import told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def here(fresh_python: Template, folder: str) -> Any:
    """The outcomes in the process that saves."""
    return told(fresh_python, f"failing.save({folder!r})")


@pytest.fixture(scope="module")
def there(fresh_python: Template, folder: str, here: Any) -> Any:
    """The outcomes in a process that loads."""
    return told(fresh_python, f"failing.load({folder!r})")


@pytest.mark.parametrize("name", FAILING)
def test_errors(here: Any, there: Any, name: str) -> None:
    """In the compiled function, and in one that calls it."""
    plain = here["model"][f"{name} plain"]
    assert plain[1][0] == "InvalidArgumentError"
    for found in (here, there):
        for kind in ("compiled", "outer", "plain"):
            # Graph mode, and a partitioned function, may call Python before they raise, or after.
            assert _without_notes(found["model"][f"{name} {kind}"]) == _without_notes(plain)


def _without_notes(outcomes: list[Any]) -> list[Any]:
    return [outcome[:-1] for outcome in outcomes]


@pytest.mark.custom_call
@pytest.mark.parametrize("name", FAILING)
def test_calls_before_an_error(here: Any, there: Any, name: str) -> None:
    for found in (here, there):
        for kind in ("compiled", "outer"):
            _, bad, *_ = found["model"][f"{name} {kind}"]
            assert bad[-1] == FAILING[name].notes


@pytest.mark.custom_call
def test_an_error_comes_before_variables_are_assigned(here: Any, there: Any) -> None:
    *calls, count = here["model"]["steps"]
    assert [call[0] == "InvalidArgumentError" for call in calls] == [False, True, False, True]
    assert count == 2
    assert there["model"]["steps"] == here["model"]["steps"]


def test_values(here: Any, there: Any) -> None:
    expected = here["model"]["values plain"]
    assert "Error" not in expected[0]
    for found in (here, there):
        assert found["model"]["values compiled"] == expected


def test_keras_models(here: Any, there: Any) -> None:
    """Saved by Keras, and exported as a SavedModel."""
    predicted = here["keras"]["predict"]
    for call in predicted, here["keras"]["fit"]:
        assert [outcome[0] == "InvalidArgumentError" for outcome in call] == [False, True] * 2
    assert there["keras"] == here["keras"]
    assert there["exported"]["predict"] == predicted

"""Tests of the uses of SavedModels and Keras models in other processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.saved import functions, keras_models
from tests.support.saved.elsewhere import told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def here(fresh_python: Template, folder: str) -> Any:
    return told(fresh_python, f"uses.write({folder!r})")


@pytest.fixture(scope="module")
def there(fresh_python: Template, folder: str, here: Any) -> Any:
    """The results of the models and their copies in another process."""
    return told(fresh_python, f"uses.use({folder!r})")


def test_signatures_and_the_variable_that_they_assign(here: Any, there: Any) -> None:
    for model in ("accumulator", "rewritten_too"):
        assert there[f"signatures of {model}"] == here["signatures"]
    assert there["rewritten_without"] is True  # made without its functions


@pytest.mark.parametrize("model", ["model", "rewritten"])
def test_models_train_on_their_own_and_from_checkpoints_and_are_frozen(
    here: Any, there: Any, model: str
) -> None:
    assert there[f"{model}, loaded twice"] == [here["trained"], here["trained"]]
    assert there[f"{model}, restored"] == here["after_checkpoint"]
    assert there[f"{model}, frozen"] == here["loss"]


def test_graphs_of_tensorflow_1_are_pruned_trained_and_frozen(here: Any, there: Any) -> None:
    assert there["pruned"] == [2.0, 0.5, 0.5, 1.5, 2.0, 0.5, 0.5, 1.5]
    assert there["saver"] == here["saver"]
    assert len({*here["saver"]}) == 4
    assert there["frozen graphs"] == here["saver"][:1] * 2  # written in two ways


# SavedModels that are loaded and trained further, and saved again.


@pytest.mark.parametrize("jitted", [False, True], ids=["plain", "jitted"])
def test_training_that_goes_on_elsewhere_is_the_same(
    fresh_python: Template, tmp_path: Path, jitted: bool
) -> None:
    folder = str(tmp_path)
    uninterrupted = told(fresh_python, f"training.begin({folder!r}, {jitted})")
    assert told(fresh_python, f"training.go_on({folder!r}, 'first', 'second')") == uninterrupted
    # Saved once more by a process that had loaded it, called or not, and loaded by a third one.
    assert told(fresh_python, f"training.go_on({folder!r}, 'second', 'third')") == uninterrupted
    uncalled = told(fresh_python, f"training.go_on({folder!r}, 'second_uncalled', 'fourth')")
    assert uncalled == uninterrupted


# Keras models that are exported or saved, in other processes.


def test_keras_models_compute_and_train_on_as_if_never_interrupted(
    fresh_python: Template, tmp_path: Path
) -> None:
    here = told(fresh_python, f"keras_models.write({str(tmp_path)!r})")
    assert told(fresh_python, f"keras_models.read({str(tmp_path)!r})") == here
    for model in keras_models.MODELS:
        assert here[model] == ([[1.0] * 2] * 2 if model == "pickled" else [[2.0] * 2] * 2)
    script = f"""
import hostcall
from tests.support.saved import keras_models
keras_models.by_command({str(tmp_path / "functional")!r})
"""
    ended = fresh_python.run_program(script, HOSTCALL_ALLOW=functions.__name__)
    assert ended.status == 0, ended.said
    assert "[[2. 2.]\n [2. 2.]]" in ended.printed

"""Tests of the uses of SavedModels and Keras models in other processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.saved import functions, keras_models
from tests.support.saved.elsewhere import told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("uses"))


@pytest.fixture(scope="module")
def here(fresh_python: Template, folder: str) -> Any:
    """The results of the models where they were saved."""
    return told(fresh_python, f"uses.write({folder!r})")


@pytest.fixture(scope="module")
def there(fresh_python: Template, folder: str, here: Any) -> Any:
    """The results of the models and their copies in another process."""
    return told(fresh_python, f"uses.use({folder!r})")


@pytest.mark.parametrize("model", ["accumulator", "rewritten_too"])
def test_three_signatures_and_the_variable_that_they_assign(
    here: Any, there: Any, model: str
) -> None:
    assert there[f"signatures of {model}"] == here["signatures"]


def test_a_model_is_rewritten_without_its_functions(there: Any) -> None:
    assert there["rewritten_without"] is True


@pytest.mark.parametrize("model", ["model", "rewritten"])
def test_models_that_are_loaded_together_train_on_their_own(
    here: Any, there: Any, model: str
) -> None:
    assert there[f"{model}, loaded twice"] == [here["trained"], here["trained"]]


@pytest.mark.parametrize("model", ["model", "rewritten"])
def test_models_are_frozen(here: Any, there: Any, model: str) -> None:
    assert there[f"{model}, frozen"] == here["loss"]


@pytest.mark.parametrize("model", ["model", "rewritten"])
def test_training_goes_on_from_a_checkpoint_beside_the_model(
    here: Any, there: Any, model: str
) -> None:
    assert there[f"{model}, restored"] == here["after_checkpoint"]


def test_graph_of_tensorflow_1_is_pruned(there: Any) -> None:
    assert there["pruned"] == [2.0, 0.5, 0.5, 1.5, 2.0, 0.5, 0.5, 1.5]


def test_graph_that_a_saver_wrote_trains_on(here: Any, there: Any) -> None:
    assert there["saver"] == here["saver"]
    assert len({*here["saver"]}) == 4


def test_frozen_graphs_that_were_written_in_two_ways(here: Any, there: Any) -> None:
    assert there["frozen graphs"] == here["saver"][:1] * 2


# SavedModels that are loaded and trained further, saved again, frozen, and of TensorFlow 1.


@pytest.mark.parametrize("jitted", [False, True], ids=["plain", "jitted"])
def test_training_that_goes_on_elsewhere_is_the_same(
    fresh_python: Template, tmp_path: Path, jitted: bool
) -> None:
    folder = str(tmp_path)
    uninterrupted = told(fresh_python, f"training.begin({folder!r}, {jitted})")
    assert told(fresh_python, f"training.go_on({folder!r}, 'first', 'second')") == uninterrupted
    # Saved once more by a process that had loaded it, called or not, and loaded by a third one.
    assert told(fresh_python, f"training.go_on({folder!r}, 'second', 'third')") == uninterrupted
    assert (
        told(fresh_python, f"training.go_on({folder!r}, 'second_uncalled', 'fourth')")
        == uninterrupted
    )


def test_graph_of_tensorflow_1_with_a_gradient(fresh_python: Template, tmp_path: Path) -> None:
    saved = told(fresh_python, f"training.begin_version_1({str(tmp_path)!r})")
    assert told(fresh_python, f"training.go_on_version_1({str(tmp_path)!r})") == saved


def test_frozen_graph_of_a_loaded_model(fresh_python: Template, tmp_path: Path) -> None:
    told(fresh_python, f"training.begin({str(tmp_path)!r}, False)")
    frozen = told(fresh_python, f"training.freeze({str(tmp_path)!r})")
    assert told(fresh_python, f"training.thaw({str(tmp_path)!r})") == frozen


# Keras models that are exported or saved, in other processes.


@pytest.fixture(scope="module")
def keras_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("keras"))


@pytest.fixture(scope="module")
def keras_here(fresh_python: Template, keras_folder: str) -> Any:
    """The results of the models where they were saved."""
    return told(fresh_python, f"keras_models.write({keras_folder!r})")


@pytest.fixture(scope="module")
def keras_there(fresh_python: Template, keras_folder: str, keras_here: Any) -> Any:
    """The results of the models in another process."""
    return told(fresh_python, f"keras_models.read({keras_folder!r})")


@pytest.mark.parametrize("model", keras_models.MODELS)
def test_exported_model_is_a_layer_that_computes_the_same(
    keras_here: Any, keras_there: Any, model: str
) -> None:
    assert keras_there[model] == keras_here[model]
    assert keras_here[model] == ([[1.0] * 2] * 2 if model == "pickled" else [[2.0] * 2] * 2)


@pytest.mark.parametrize("model", keras_models.SAVED)
def test_model_that_keras_has_saved_trains_on_as_if_never_interrupted(
    keras_here: Any, keras_there: Any, model: str
) -> None:
    assert keras_there[f"{model}.keras"] == keras_here[f"{model}.keras"]


def test_exported_model_by_the_command(
    fresh_python: Template, keras_folder: str, keras_here: Any
) -> None:
    script = f"""
import hostcall
from tests.support.saved import keras_models
keras_models.by_command({keras_folder + "/functional"!r})
"""
    ended = fresh_python.run_program(script, HOSTCALL_ALLOW=functions.__name__)
    assert ended.status == 0, ended.said
    assert "[[2. 2.]\n [2. 2.]]" in ended.printed

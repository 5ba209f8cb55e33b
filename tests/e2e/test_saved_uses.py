"""What people do with SavedModels in other processes: signatures, rewriting, freezing, pruning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.saved.elsewhere import told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("uses"))


@pytest.fixture(scope="module")
def here(fresh_python: Template, folder: str) -> Any:
    """What the models compute where they were saved."""
    return told(fresh_python, f"uses.write({folder!r})")


@pytest.fixture(scope="module")
def there(fresh_python: Template, folder: str, here: Any) -> Any:
    """What they and their copies compute in another process."""
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

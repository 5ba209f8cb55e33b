"""Keras models that are exported or saved, in other processes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.saved import functions, keras_models
from tests.support.stress.template import Template

_RUN = "import hostcall; from tests.support.saved import keras_models as m; "


def run(template: Template, call: str, **variables: str) -> str:
    ended = template.run_program(f"{_RUN}{call}", **variables)
    assert ended.status == 0, ended.said
    return ended.printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("keras"))


@pytest.fixture(scope="module")
def here(fresh_python: Template, folder: str) -> Any:
    """What the models compute where they were saved."""
    return json.loads(run(fresh_python, f"print(m.write({folder!r}))").splitlines()[-1])


@pytest.fixture(scope="module")
def there(fresh_python: Template, folder: str, here: Any) -> Any:
    """What they compute in another process."""
    return json.loads(run(fresh_python, f"print(m.read({folder!r}))").splitlines()[-1])


@pytest.mark.parametrize("model", keras_models.MODELS)
def test_exported_model_is_a_layer_that_computes_the_same(
    here: Any, there: Any, model: str
) -> None:
    assert there[model] == here[model]
    assert here[model] == ([[1.0] * 2] * 2 if model == "pickled" else [[2.0] * 2] * 2)


@pytest.mark.parametrize("model", keras_models.SAVED)
def test_model_that_keras_has_saved_trains_on_as_if_never_interrupted(
    here: Any, there: Any, model: str
) -> None:
    assert there[f"{model}.keras"] == here[f"{model}.keras"]


def test_exported_model_by_the_command(fresh_python: Template, folder: str, here: Any) -> None:
    allowed = {"HOSTCALL_ALLOW": functions.__name__}
    printed = run(fresh_python, f"m.by_command({folder + '/functional'!r})", **allowed)
    assert "[[2. 2.]\n [2. 2.]]" in printed

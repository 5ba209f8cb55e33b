"""SavedModels of one process compute the same in another one."""

from typing import Any

import pytest

from tests.support.saved import models
from tests.support.saved.elsewhere import printed, told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture(scope="module")
def computed(fresh_python: Template, path: str) -> dict[str, dict[str, Any]]:
    """The results of the models, where they were saved and where they were loaded."""
    before, after, here = told(fresh_python, f"models.save({path!r})")
    there, once_more = told(fresh_python, f"models.load({path!r})")
    return {"before": before, "after": after, "here": here, "there": there, "again": once_more}


@pytest.mark.parametrize("case", models.CASES)
def test_what_another_process_computes_is_equal_to_the_bit(computed: Any, case: str) -> None:
    assert computed["there"][case] == computed["before"][case]
    assert computed["again"][case] == computed["before"][case]


@pytest.mark.parametrize("case", models.CASES)
def test_saving_changes_nothing_in_the_process_that_saves(computed: Any, case: str) -> None:
    assert computed["after"][case] == computed["before"][case]
    assert computed["here"][case] == computed["before"][case]


def test_the_models_compute_something(computed: Any) -> None:
    failed = {case: got for case, got in computed["before"].items() if "Error" in str(got)}
    assert failed == {}


def test_nothing_is_imported_by_loading(fresh_python: Template, computed: Any, path: str) -> None:
    script = f"""
import sys, json, warnings
import tensorflow as tf
import hostcall
hostcall.allow("tests.support")
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    loaded = tf.saved_model.load({path!r})
before = {models.MODULE!r} in sys.modules
loaded.numpy_function_plain(tf.zeros([4]))
text = next(str(w.message) for w in warned if "hostcall" in str(w.message))
print(json.dumps([before, {models.MODULE!r} in sys.modules, text.count("  - "), text]))
"""
    before, after, listed, text = printed(fresh_python, script)
    assert (before, after) == (False, True)
    assert listed == 1, text
    assert "tests::minus_one, called at models.py" in text
    assert 'hostcall.provide("tests::minus_one", function)' in text

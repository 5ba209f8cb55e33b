"""SavedModels of one process compute the same in another one."""

from typing import Any

import pytest

from tests.support.saved import models
from tests.support.saved.elsewhere import printed, told
from tests.support.stress.template import Template


@pytest.fixture(scope="module")
def computed(fresh_python: Template, folder: str) -> dict[str, dict[str, Any]]:
    """The results of the models, where they were saved and where they were loaded."""
    before, after, here = told(fresh_python, f"models.save({folder!r})")
    there, once_more = told(fresh_python, f"models.load({folder!r})")
    return {"before": before, "after": after, "here": here, "there": there, "again": once_more}


@pytest.mark.parametrize("case", models.CASES)
def test_what_another_process_computes_is_equal_to_the_bit(computed: Any, case: str) -> None:
    """Also in the process that saves: it computes as before, and so does what it loads."""
    for when in ("there", "again", "after", "here"):
        assert computed[when][case] == computed["before"][case], when


def test_the_models_compute_something(computed: Any) -> None:
    failed = {case: got for case, got in computed["before"].items() if "Error" in str(got)}
    assert failed == {}


def test_nothing_is_imported_by_loading(fresh_python: Template, computed: Any, folder: str) -> None:
    script = f"""
import sys, json, warnings
import tensorflow as tf
import hostcall
hostcall.allow("tests.support")
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    loaded = tf.saved_model.load({folder!r})
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

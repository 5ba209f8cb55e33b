"""The places in the user's code that XLA's messages name."""

import os

import pytest
import tensorflow as tf

from hostcall._compiler.analyses import node_places

_HERE = os.path.abspath(__file__)
_OF_TENSORFLOW = os.path.join(os.path.dirname(tf.__file__), "python", "ops", "array_ops.py")


def message(prefix: str) -> str:
    """A refusal with a trace, from whose paths TensorFlow has taken what they begin with."""
    trace = [
        f'File "{path.removeprefix(prefix)}", line {line}, in f'
        for path, line in [(_HERE, 7), (_OF_TENSORFLOW, 9)]
    ]
    return "\n".join(["no kernel for X", *trace, "\ttf2xla conversion failed while converting"])


@pytest.mark.parametrize("shortened", [False, True])
def test_it_is_the_innermost_frame_of_the_user(
    shortened: bool, tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common = os.path.commonpath([_HERE, _OF_TENSORFLOW]) + os.sep if shortened else ""
    assert node_places.in_message(message(common)) == f"{_HERE}:7"


def test_files_that_no_module_has_stay_as_they_are() -> None:
    text = 'File "some/notebook.py", line 3, in f\nFile "<string>", line 5, in g'
    assert node_places.in_message(text) == "<string>:5"
    assert node_places.in_message(text.replace("<string>", "other.py")) == "other.py:5"

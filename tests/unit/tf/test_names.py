"""hostcall._tf.features: each private name of TensorFlow, and what happens where one is missing."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import hostcall
from hostcall import _installation
from hostcall._tf import features
from hostcall_runtime._patching import Name

_ESSENTIAL = features.SCRIPT_OPS
_OPTIONAL = [feature for feature in features.ALL if not feature.essential]
_PACKAGE = Path(hostcall.__file__).parent


def _id(name: Name) -> str:
    return f"{name.feature}: {name}"


@pytest.mark.parametrize("name", features.NAMES, ids=_id)
def test_tensorflow_has_the_name_and_a_feature_needs_it(name: Name) -> None:
    name.find()
    assert name.feature in {feature.title for feature in features.ALL}


def _private_attributes(file: Path) -> set[str]:
    """The attributes with an underscore that a module uses, but for its own and hostcall's."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "sys")
            if not own and not node.attr.startswith(("__", "_hostcall_")):
                found.add(node.attr)
    return found


@pytest.mark.parametrize("file", sorted(_PACKAGE.glob("_tf/*.py")), ids=lambda file: file.name)
def test_private_attributes_that_are_used_are_in_the_table(file: Path) -> None:
    known = {part for name in features.NAMES for part in name.attribute.split(".")}
    known.add("_py_funcs_used_in_graph")  # hostcall makes the list where TensorFlow has not
    assert _private_attributes(file) <= known


def test_private_modules_are_imported_in_the_table_alone() -> None:
    importing = set()
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(module.startswith("tensorflow.") for module in modules):
                importing.add(file)
    assert importing == set()


# Finds no name that is hidden, as if this TensorFlow did not have it.
_HIDING = """
import json, warnings
from hostcall_runtime import _patching

hidden = {hidden}
has_gradients = {has_gradients}

def hide(find):
    def find_unless_hidden(self):
        if str(self) in hidden:
            raise AttributeError(self.attribute)
        return find(self)
    return find_unless_hidden

for kind in (_patching.Name, _patching.StoredName):
    kind.find = hide(kind.find)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import hostcall
said = [str(w.message) for w in caught]
"""

_WORKS = """
import numpy as np, tensorflow as tf
from hostcall._installation import TABLE

@tf.function(jit_compile=True)
def program(x):
    return tf.ensure_shape(tf.numpy_function(lambda x: 2 * x, [x], tf.float32), [3])

@tf.function(jit_compile=True)
def program_of_tensors(x):
    return tf.ensure_shape(tf.py_function(lambda x: 3 * x, [x], tf.float32), [3])

x = tf.constant([1.0, 2.0, 3.0])
assert program(x).numpy().tolist() == [2.0, 4.0, 6.0]
assert program_of_tensors(x).numpy().tolist() == [3.0, 6.0, 9.0]
assert hostcall.bind(program, x)(x).numpy().tolist() == [2.0, 4.0, 6.0]
if has_gradients:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.py_function(lambda x: tf.gather(x, [2, 0, 2]) * x, [x], tf.float32)
    assert tape.gradient(y, x).numpy().tolist() == [5.0, 1.0, 7.0]
missing = [str(name) for name in TABLE.missing()]
patches = [patch.target for patch in TABLE.patches if patch not in TABLE.installed]
hostcall.disable()
hostcall.enable()
print(json.dumps([said, missing, patches]))
"""


def _names_of(feature: features.Feature) -> list[str]:
    return [str(name) for name in features.NAMES if name.feature == feature.title]


def _without(feature: features.Feature) -> str:
    hidden = _names_of(feature)
    has_gradients = not {*hidden} & {*_names_of(features.GRADIENTS)}
    return _HIDING.format(hidden=hidden, has_gradients=has_gradients)


@pytest.mark.parametrize("feature", _OPTIONAL, ids=lambda feature: feature.title)
def test_a_missing_name_turns_its_feature_off(run_python: Any, feature: features.Feature) -> None:
    said, missing, patches = json.loads(run_python(_without(feature) + _WORKS))
    hidden = [str(name) for name in features.NAMES if name.feature == feature.title]
    (message,) = [text for text in said if f"for {feature.title}: " in text]
    for name in hidden:
        assert name in message
        assert name in missing
    assert feature.without in message
    assert "Install a version of TensorFlow" in message
    wanted = [p.target for p in _installation.TABLE.patches if p.feature == feature.title]
    assert set(wanted) - set(patches) == set()


_STAYS_STOCK = """
import tensorflow as tf
from tensorflow.python.ops import script_ops
from hostcall._tf import features

assert not hostcall._control.is_enabled()
assert not hasattr(script_ops._internal_py_func, "__wrapped__")
try:
    hostcall.enable()
except ImportError as error:
    said.append(str(error))
x = tf.constant([1.0, 2.0])
assert tf.py_function(lambda x: 2 * x, [x], tf.float32).numpy().tolist() == [2.0, 4.0]
hostcall.disable()
print(json.dumps(said))
"""


def test_without_an_essential_name_hostcall_stays_disabled_and_says_so(run_python: Any) -> None:
    said = json.loads(run_python(_without(_ESSENTIAL) + _STAYS_STOCK))
    warning, error = [text for text in said if not text.startswith("hostcall was tested with")]
    assert warning == error
    for name in features.NAMES:
        if name.feature == _ESSENTIAL.title:
            assert str(name) in error

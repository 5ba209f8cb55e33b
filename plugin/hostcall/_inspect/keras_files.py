"""Models that Keras has saved (`.keras`): they hold no graph, but the names of classes."""

from __future__ import annotations

import functools
import importlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostcall._inspect.facts import InspectionError, PythonFunction, Use, merged
from hostcall._inspect.inspection import Inspection
from hostcall._saving.functions import has_module

_CONFIG = "config.json"

# What Keras imports by itself, and where it looks for the functions that it names by strings.
_KERAS = ("keras", "keras_hub", "keras_cv", "keras_nlp")
_PARTS = ("activations", "losses", "metrics", "initializers", "regularizers", "constraints")
_NOTE = (
    "A .keras file holds no graph: Keras builds the model anew from its classes, and calls the "
    "Python functions that they call. hostcall.allow has no say in it. Model.export writes a "
    "SavedModel, which names these functions."
)


def of_model(path: Path) -> Inspection:
    """The classes and functions of a Keras model that are not Keras's own.

    Raises:
      InspectionError: when it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read(_CONFIG))
        found = merged(list(_in(config, "")))
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError, OSError) as error:
        raise InspectionError(
            f"{path} holds no Keras model that can be read: {type(error).__name__}: {error}"
        ) from error
    return Inspection(str(path), "Keras model", found, (_NOTE,))


def _in(config: Any, layer: str) -> Iterator[PythonFunction]:
    """What a part of the configuration names, with the name of the layer that it is in."""
    if isinstance(config, list):
        for item in config:
            yield from _in(item, layer)
    if not isinstance(config, dict):
        return
    inner = config.get("config")
    if isinstance(inner, dict) and isinstance(inner.get("name"), str):
        layer = inner["name"]
    if isinstance(config.get("class_name"), str):
        yield from _named_by(config, layer)
    for item in config.values():
        yield from _in(item, layer)


def _named_by(config: dict[str, Any], layer: str) -> Iterator[PythonFunction]:
    name, module = config["class_name"], config.get("module")
    if name == "__lambda__":
        use = Use("a lambda, as bytecode", (), layer)
        yield PythonFunction(
            f"a lambda in {layer}",
            uses=(use,),
            problem="the file holds it as bytecode, which can do anything when it is called",
            write="keras.saving.load_model(path, safe_mode=False)",
        )
        return
    is_function = name == "function" and isinstance(config.get("config"), str)
    if is_function:
        name, registered = config["config"], config["config"]
    else:
        registered = config.get("registered_name")
    if not isinstance(registered, str) or _is_of_keras(name, module, is_function):
        return
    short = name.rpartition(">")[2]
    place = f"{module}:{short}" if isinstance(module, str) and module != "builtins" else None
    problem, write = _problem(registered, place, short)
    yield PythonFunction(
        place or registered,
        place,
        registered,
        uses=(Use("a function" if is_function else "a class", (), layer),),
        problem=problem,
        write=write,
    )


def _is_of_keras(name: str, module: Any, is_function: bool) -> bool:
    if isinstance(module, str) and module.partition(".")[0] in _KERAS:
        return True
    keras = _keras()
    return is_function and any(hasattr(getattr(keras, part, None), name) for part in _PARTS)


def _problem(registered: str, place: str | None, name: str) -> tuple[str, str]:
    """What keeps Keras from finding it, and what to write."""
    keras = _keras()
    if keras is not None and keras.saving.get_registered_object(registered) is not None:
        return "", ""
    problem = "Keras takes it only where it is registered, or passed in custom_objects"
    if place is None:
        return problem, f"keras.saving.load_model(path, custom_objects={{{registered!r}: {name}}})"
    module = place.partition(":")[0]
    if not has_module(module):
        problem = f"there is no module {module} here: its directory is not in sys.path"
    if ">" in registered:
        return problem, f"import {module}  # which registers {registered}"
    return problem, (
        f"from {module} import {name}\n"
        f"    keras.saving.load_model(path, custom_objects={{{registered!r}: {name}}})"
    )


@functools.cache
def _keras() -> Any:
    """Keras, or None where it is not installed."""
    try:
        return importlib.import_module("keras")
    except ImportError:
        return None

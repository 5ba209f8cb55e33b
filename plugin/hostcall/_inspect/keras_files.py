"""Models that Keras has saved (`.keras`): they hold no graph, but the names of classes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostcall._inspect.facts import InspectionError, PythonFunction, Use, merged
from hostcall._inspect.inspection import Inspection
from hostcall._saving import functions

_CONFIG = "config.json"
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
    if name.startswith("__") or _is_of_keras(module, config.get("registered_name"), name):
        return
    is_function = name == "function" and isinstance(config.get("config"), str)
    called = config["config"] if is_function else name
    registered = config.get("registered_name")
    kind = "a function" if is_function else "a class"
    uses = (Use(kind, (), layer),)
    place = f"{module}:{called}" if isinstance(module, str) and module != "builtins" else None
    given = registered if isinstance(registered, str) and registered != name else None
    problem, write = _problem(given or called, module if place else None, called)
    label = given or place or called
    yield PythonFunction(label, place, given, uses=uses, problem=problem, write=write)


def _is_of_keras(module: Any, registered: Any, name: str) -> bool:
    if isinstance(module, str):
        return module.partition(".")[0] == "keras"
    return registered in (None, name)  # a dict that merely looks like it


def _problem(name: str, module: str | None, called: str) -> tuple[str, str]:
    """What keeps Keras from finding it, as far as is told without an import; and what to write."""
    write = f"keras.saving.load_model(path, custom_objects={{{json.dumps(name)}: {called}}})"
    if module is None:
        return "it is in no module: it has to be registered before the model is loaded", write
    if not functions.has_module(module):
        return f"there is no module {module.partition('.')[0]} here", write
    return "", ""

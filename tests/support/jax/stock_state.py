"""All attributes and registries of JAX, to tell what an import changes of them."""

import importlib
import json
import sys
import types
from typing import Any

Place = tuple[Any, ...]


def snapshot(modules: list[str]) -> dict[Place, Any]:
    """Return the value at each place: in modules, their classes, dicts and sets of effect types."""
    found: dict[Place, Any] = {}
    for module in modules:
        for name, value in list(vars(sys.modules[module]).items()):
            if isinstance(value, types.ModuleType):  # one more submodule is loaded
                continue
            found[module, name] = value
            found.update(_in(value, (module, name), module))
    return found


def _in(value: Any, place: Place, module: str) -> dict[Place, Any]:
    if isinstance(value, type) and value.__module__ == module:
        return {(*place, name): item for name, item in list(vars(value).items())}
    if type(value) is dict:
        return {(*place, str(key)): item for key, item in list(value.items())}
    kinds = getattr(value, "_effect_types", None)
    if isinstance(kinds, set):
        return {(*place, kind.__name__): kind for kind in kinds}
    return {}


def loaded() -> list[str]:
    return [
        name
        for name, module in sys.modules.items()
        if name.startswith(("jax._src", "jaxlib")) and isinstance(module, types.ModuleType)
    ]


def changed(before: dict[Place, Any], after: dict[Place, Any]) -> set[str]:
    """The places at which another object stands, or something new."""
    return {
        ".".join(map(str, place))
        for place, value in after.items()
        if place not in before or before[place] is not value
    } | {".".join(map(str, place)) for place in before.keys() - after.keys()}


def report() -> None:
    """Prints as JSON what `import hostcall.jax` changes, and what then `disable()` does."""
    import hostcall

    modules = loaded()
    before = snapshot(modules)
    importlib.import_module("hostcall.jax")
    found = {"imported": changed(before, snapshot(modules))}
    hostcall.disable()
    found["disabled"] = changed(before, snapshot(modules))
    hostcall.enable()
    found["enabled"] = changed(before, snapshot(modules))
    hostcall.disable()
    found["disabled again"] = changed(before, snapshot(modules))
    print(json.dumps({state: sorted(places) for state, places in found.items()}))  # noqa: T201

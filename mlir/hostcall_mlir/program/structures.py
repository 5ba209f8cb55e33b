"""Structures: the nesting of arguments and results in tuples, lists, dicts and namedtuples.

In a manifest a structure is JSON: a number for a leaf, null for None, and `{"tuple": [...]}`,
`{"list": [...]}`, `{"dict": {...}}` or `{"namedtuple": "module:Name", "items": [...]}`. The number
of a leaf is its index in a flat list of values.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hostcall_runtime._errors import NotExportableError, counted

Structure = int | None | dict[str, Any]  # `problem_of` checks the content of a dict
Classes = Mapping[str, type]


class StructureError(TypeError, ValueError):
    """A value whose structure differs from the expected one; the text says where."""


def problem_of(structure: Structure, count: int) -> str | None:
    """Return the problem of a structure of `count` values, None if it is valid."""
    try:
        leaves = [part for part in _parts_of(structure) if isinstance(part, int)]
    except (TypeError, AttributeError, KeyError, ValueError, RecursionError):
        return f"{reprlib.repr(structure)} is not a structure"
    if sorted(leaves) != [*range(count)]:
        return f"the leaves are {leaves}, and have to be the numbers of {counted(count, 'value')}"
    return None


def namedtuples_of(structure: Structure) -> list[str]:
    """Return the names, `module:Name`, of all namedtuples in a structure."""
    dicts = (part for part in _parts_of(structure) if isinstance(part, dict))
    return [part["namedtuple"] for part in dicts if "namedtuple" in part]


def _parts_of(structure: Structure) -> Iterator[Structure]:
    """Yield a structure and all structures in it; raise an error if one is malformed."""
    yield structure
    if structure is not None and type(structure) is not int:
        for item in _items(structure)[1]:
            yield from _parts_of(item)


def structure_of(numbers: Any, what: str) -> Structure:
    """Return the structure of a value of leaves' numbers; errors call the value `what`."""
    if numbers is None or isinstance(numbers, int):
        return numbers
    if isinstance(numbers, dict):
        if not all(isinstance(key, str) for key in numbers):
            raise NotExportableError(
                f"a dict in a structure has keys that are not strings: {[*numbers]}"
            )
        return {"dict": {key: structure_of(item, what) for key, item in numbers.items()}}
    kind = type(numbers)
    if not isinstance(numbers, list | tuple):
        raise NotExportableError(
            f"{what} is in a {kind.__name__}, and programs have tuples, lists, dicts and "
            "namedtuples. Use one of these."
        )
    items = [structure_of(item, what) for item in numbers]
    if hasattr(numbers, "_fields"):
        return {"namedtuple": f"{kind.__module__}:{kind.__qualname__}", "items": items}
    return {"list" if isinstance(numbers, list) else "tuple": items}


def pack(structure: Structure, flat: Sequence[Any], classes: Classes = {}) -> Any:  # noqa: B006
    """Build a Python value from the values that leaves number; `classes` are the namedtuples."""
    if structure is None:
        return None
    if isinstance(structure, int):
        return flat[structure]
    kind, items = _items(structure)
    packed = [pack(item, flat, classes) for item in items]
    if kind == "dict":
        return dict(zip(structure["dict"], packed, strict=True))
    if kind == "namedtuple":
        return classes[structure["namedtuple"]](*packed)
    return packed if kind == "list" else tuple(packed)


def flatten(
    structure: Structure, value: Any, who: str, names: Sequence[str] | None = None
) -> list[Any]:
    """Return the values of a Python value's leaves, in the order of their numbers."""
    # A value may have a tuple, list or namedtuple in the place of any of them, since the choice is
    # often a habit. `names` are those of the leaves, if they are arguments.
    found: dict[int, Any] = {}
    try:
        _collect(structure, value, found, "")
    except StructureError as error:
        wanted = show(structure) if names is None else f"({', '.join(_shown(structure, names))})"
        raise StructureError(f"{who} should be {wanted}, and there is {error}.") from None
    return [found[number] for number in sorted(found)]


def show(structure: Structure, names: Sequence[str] | None = None) -> str:
    """Return a structure as Python text: `(array, {'x': array})`, or with names of its leaves."""
    if structure is None:
        return "None"
    if isinstance(structure, int):
        return "array" if names is None else names[structure]
    shown = _shown(structure, names)
    if "dict" in structure:
        parts = zip(structure["dict"], shown, strict=True)
        return "{" + ", ".join(f"{key!r}: {item}" for key, item in parts) + "}"
    inner = ", ".join(shown)
    if "list" in structure:
        return f"[{inner}]"
    if "namedtuple" in structure:
        return f"{structure['namedtuple'].rpartition(':')[2]}({inner})"
    return f"({inner},)" if len(shown) == 1 else f"({inner})"


def _shown(structure: Structure, names: Sequence[str] | None) -> list[str]:
    return [show(item, names) for item in _items(structure)[1]]


def type_name(value: Any) -> str:
    """Return the name of a value's type with its article."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _items(structure: Any) -> tuple[str, list[Any]]:
    """Return the kind of a structure and its items; raise an error if it is malformed."""
    keys = {*structure}
    if keys == {"dict"}:
        return "dict", [*structure["dict"].values()]
    if keys == {"namedtuple", "items"} and isinstance(structure["namedtuple"], str):
        kind, items = "namedtuple", structure["items"]
    else:
        ((kind, items),) = structure.items()
    if kind not in ("tuple", "list", "namedtuple") or not isinstance(items, list):
        raise ValueError(kind)
    return kind, items


def _collect(structure: Structure, value: Any, found: dict[int, Any], where: str) -> None:
    if structure is None:
        if value is not None:
            raise StructureError(f"{type_name(value)} where None is expected{where}")
        return
    if isinstance(structure, int):
        found[structure] = value
        return
    kind, items = _items(structure)
    if kind == "dict":
        keys = [*structure["dict"]]
        if not isinstance(value, Mapping) or {*value} != {*keys}:
            is_dict = isinstance(value, Mapping)
            has = f"a dict of the keys {[*value]}" if is_dict else type_name(value)
            raise StructureError(f"{has} where a dict of the keys {keys} is expected{where}")
    else:
        keys = [*range(len(items))]
        if not isinstance(value, list | tuple) or len(value) != len(items):
            length = f" of {len(value)}" if isinstance(value, list | tuple) else ""
            expected = f"a {kind} of {len(items)} is expected{where}"
            raise StructureError(f"{type_name(value)}{length} where {expected}")
    for item, key in zip(items, keys, strict=True):
        _collect(item, value[key], found, f"{where or ' at '}[{key!r}]")

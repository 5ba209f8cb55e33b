"""Structures: the nesting of arguments and results in tuples, lists, dicts and namedtuples.

In a manifest a structure is JSON: a number for a leaf, null for None, and `{"tuple": [...]}`,
`{"list": [...]}`, `{"dict": {...}}` or `{"namedtuple": "module:Name", "items": [...]}`. The number
of a leaf is its index in a flat list of values.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hostcall_runtime._errors import counted

# `problem_of` checks the content of a dict.
Structure = int | None | dict[str, Any]

Classes = Mapping[str, type]


class StructureError(TypeError, ValueError):
    """A value whose structure differs from the expected one; the text says where."""


def problem_of(structure: Structure, count: int) -> str | None:
    """Return the problem of a structure of `count` values, None if it is valid."""
    try:
        leaves = [*leaves_of(structure)]
    except (TypeError, AttributeError, KeyError, ValueError, RecursionError):
        return f"{reprlib.repr(structure)} is no structure"
    if sorted(leaves) != [*range(count)]:
        return f"the leaves are {leaves}, and have to be the numbers of {counted(count, 'value')}"
    return None


def leaves_of(structure: Structure) -> Iterator[int]:
    """Yield the numbers of the leaves, in the order of the structure."""
    if structure is None:
        return
    if type(structure) is int:
        yield structure
        return
    for item in _parts(structure)[1]:
        yield from leaves_of(item)


def namedtuples_of(structure: Structure) -> Iterator[str]:
    """Yield the names, `module:Name`, of all namedtuples in a structure."""
    if isinstance(structure, dict):
        if "namedtuple" in structure:
            yield structure["namedtuple"]
        for item in _parts(structure)[1]:
            yield from namedtuples_of(item)


def structure_of(value: Any, leaves: list[Any]) -> Structure:
    """Return the structure of a Python value, and append its leaves to `leaves`.

    Raises:
      StructureError: for a dict with keys that are not strings.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise StructureError(f"a dict in a structure has keys that are not strings: {[*value]}")
        return {"dict": {key: structure_of(item, leaves) for key, item in value.items()}}
    if not isinstance(value, list | tuple):
        leaves.append(value)
        return len(leaves) - 1
    items = [structure_of(item, leaves) for item in value]
    if hasattr(value, "_fields"):
        kind = type(value)
        return {"namedtuple": f"{kind.__module__}:{kind.__qualname__}", "items": items}
    return {"list" if isinstance(value, list) else "tuple": items}


def structure_of_numbers(value: Any, what: str) -> Structure:
    """Return the structure of a Python value that has the number of each leaf in its place.

    Args:
      value: the value.
      what: the name of the value in errors: "a result of predict".

    Raises:
      StructureError: if it holds anything but numbers, and structures of them.
    """
    leaves: list[Any] = []
    structure = structure_of(value, leaves)
    for leaf in leaves:
        if not isinstance(leaf, int):
            raise StructureError(
                f"{what} is in a {type(leaf).__name__}, and programs have tuples, lists, dicts and "
                "namedtuples. Use one of these."
            )
    return renumbered(structure, leaves)


def renumbered(structure: Structure, numbers: Sequence[int]) -> Structure:
    """Return the structure with the number `numbers[i]` for each leaf `i`."""
    if structure is None:
        return None
    if isinstance(structure, int):
        return numbers[structure]
    if "dict" in structure:
        return {"dict": {k: renumbered(item, numbers) for k, item in structure["dict"].items()}}
    return {
        kind: items if isinstance(items, str) else [renumbered(item, numbers) for item in items]
        for kind, items in structure.items()
    }


def pack(structure: Structure, flat: Sequence[Any], classes: Classes = {}) -> Any:  # noqa: B006
    """Build the Python value of a structure.

    Args:
      structure: the structure.
      flat: the values that its leaves number.
      classes: the namedtuples by name.
    """
    if structure is None:
        return None
    if isinstance(structure, int):
        return flat[structure]
    if "dict" in structure:
        return {key: pack(item, flat, classes) for key, item in structure["dict"].items()}
    kind, items = _parts(structure)
    packed = [pack(item, flat, classes) for item in items]
    if kind == "namedtuple":
        return classes[structure["namedtuple"]](*packed)
    return packed if kind == "list" else tuple(packed)


def flatten(
    structure: Structure, value: Any, who: str, names: Sequence[str] | None = None
) -> list[Any]:
    """Return the values of a Python value's leaves, in the order of their numbers.

    Where the structure has a tuple, a list or a namedtuple, the value may have any of the three,
    since the choice is often a habit.

    Args:
      structure: the structure.
      value: the value.
      who: the name of the value in errors: "the arguments of predict".
      names: the names of the leaves, if the structure is that of arguments.

    Raises:
      StructureError: if the value has another structure.
    """
    found: dict[int, Any] = {}
    wanted = show(structure) if names is None else f"({', '.join(_shown(structure, names))})"
    _collect(structure, value, found, "", lambda where, text: _mismatch(wanted, who, where, text))
    return [found[number] for number in sorted(found)]


def show(structure: Structure, names: Sequence[str] | None = None) -> str:
    """Return a structure as Python text: `(array, {'x': array})`, or with names of its leaves."""
    if structure is None:
        return "None"
    if isinstance(structure, int):
        return "array" if names is None else names[structure]
    kind, items = _parts(structure)
    shown = _shown(structure, names)
    if kind == "dict":
        parts = zip(structure["dict"], shown, strict=True)
        return "{" + ", ".join(f"{key!r}: {item}" for key, item in parts) + "}"
    inner = ", ".join(shown)
    if kind == "list":
        return f"[{inner}]"
    name = structure["namedtuple"].rpartition(":")[2] if kind == "namedtuple" else ""
    return f"{name}({inner},)" if kind == "tuple" and len(items) == 1 else f"{name}({inner})"


def _shown(structure: Structure, names: Sequence[str] | None) -> list[str]:
    return [show(item, names) for item in _parts(structure)[1]]


def type_name(value: Any) -> str:
    """Return the name of a value's type with its article."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _parts(structure: Any) -> tuple[str, list[Any]]:
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


def _collect(
    structure: Structure,
    value: Any,
    found: dict[int, Any],
    where: str,
    mismatch: Callable[[str, str], StructureError],
) -> None:
    if structure is None:
        if value is not None:
            raise mismatch(where, f"{type_name(value)} where None is expected")
        return
    if isinstance(structure, int):
        found[structure] = value
        return
    kind, items = _parts(structure)
    if kind == "dict":
        keys = [*structure["dict"]]
        if not isinstance(value, Mapping) or {*value} != {*keys}:
            is_dict = isinstance(value, Mapping)
            has = f"a dict of the keys {[*value]}" if is_dict else type_name(value)
            raise mismatch(where, f"{has} where a dict of the keys {keys} is expected")
        pairs = [(repr(key), value[key]) for key in keys]
    else:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            length = f" of {len(value)}" if isinstance(value, list | tuple) else ""
            raise mismatch(
                where, f"{type_name(value)}{length} where a {kind} of {len(items)} is expected"
            )
        pairs = [(str(index), item) for index, item in enumerate(value)]
    for item, (key, inner) in zip(items, pairs, strict=True):
        _collect(item, inner, found, f"{where}[{key}]", mismatch)


def _mismatch(wanted: str, who: str, where: str, text: str) -> StructureError:
    place = f" at {where}" if where else ""
    return StructureError(f"{who} should be {wanted}, and there is {text}{place}.")

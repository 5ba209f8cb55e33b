"""The documentation of what the extension modules define."""

import types
from collections.abc import Iterator
from typing import Any

import pytest

from hostcall_runtime import _library

each_module = pytest.mark.parametrize("name", ["hostcall_runtime._runtime", "hostcall._tensorflow"])
VERBS = frozenset(
    {"Begin", "Call", "End", "Forget", "Let", "Put"}
    | {"Raise", "Register", "Remove", "Return", "Set", "Switch"}
)


def functions(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield a module's functions, and the methods of its classes, by name."""
    for name, member in vars(module).items():
        methods = [*vars(member).items()] if isinstance(member, type) else [(name, member)]
        for method, function in methods:
            if callable(function) and not method.startswith("__"):
                yield f"{module.__name__}.{name}.{method}", function


@each_module
def test_docstrings_of_functions_begin_with_a_verb(name: str) -> None:
    found = dict(functions(_library.load(name)))
    assert len(found) > 20
    # The first line is the signature.
    documented = {name: (one.__doc__ or "").partition("\n\n")[2] for name, one in found.items()}
    wrong = {name: doc for name, doc in documented.items() if doc.split(" ")[0] not in VERBS}
    assert not wrong


@each_module
def test_classes_are_documented(name: str) -> None:
    members = vars(_library.load(name)).values()
    classes = [member for member in members if isinstance(member, type)]
    assert all((one.__doc__ or "").endswith(".") for one in classes)

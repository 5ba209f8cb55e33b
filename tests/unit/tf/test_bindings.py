"""The documentation of what the extension modules define."""

import types
from collections.abc import Iterator
from typing import Any

import pytest

from hostcall import _tensorflow
from hostcall_runtime import _runtime

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


@pytest.mark.parametrize("module", [_runtime, _tensorflow], ids=["runtime", "tensorflow"])
def test_docstrings_of_functions_begin_with_a_verb(module: types.ModuleType) -> None:
    found = dict(functions(module))
    assert len(found) > 20
    # The first line is the signature.
    documented = {name: (one.__doc__ or "").partition("\n\n")[2] for name, one in found.items()}
    wrong = {name: doc for name, doc in documented.items() if doc.split(" ")[0] not in VERBS}
    assert not wrong


@pytest.mark.parametrize("module", [_runtime, _tensorflow], ids=["runtime", "tensorflow"])
def test_classes_are_documented(module: types.ModuleType) -> None:
    classes = [member for member in vars(module).values() if isinstance(member, type)]
    assert all((one.__doc__ or "").endswith(".") for one in classes)

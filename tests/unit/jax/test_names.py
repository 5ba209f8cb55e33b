"""hostcall.jax._names: the private names of JAX, each with the feature that needs it."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hostcall.jax
from hostcall.jax import _names, _patches
from hostcall_runtime._patching import Name
from tests.support.jax.missing_names import report
from tests.support.stress.template import Template
from tests.support.versions import reads_programs_of_jax

_PRIVATE = ("jax._src", "jax.interpreters", "jax.experimental.jax2tf")


def _title(name: Name) -> str:
    return f"{name}: {name.feature}"


@pytest.mark.parametrize("name", _names.NAMES, ids=_title)
def test_the_installed_jax_has_what_a_feature_needs(name: Name) -> None:
    assert name.exists(), f"{name.feature} needs {name}. Without it, {name.without}"


def _trees() -> Iterator[ast.Module]:
    package = Path(hostcall.jax.__file__).parent
    for file in sorted([*package.glob("*.py"), *package.parent.glob("_bridges/*.py")]):
        yield ast.parse(file.read_text())


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def _used_in(tree: ast.Module) -> set[str]:
    """The private names of JAX in a module, as far as its imports tell: `module.attribute`."""
    aliases, used = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PRIVATE):
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id)
            if module is not None:
                used.add(f"{module}.{node.attr}")
    # Of `from jax._src.core import Primitive`, the name itself.
    return used | {name for name in aliases.values() if name.startswith("jax._src.core.")}


def test_the_table_has_every_private_name_that_is_used() -> None:
    used = set().union(*map(_used_in, _trees()))
    used |= {re.sub(r"[\[:].*", "", patch.target) for patch in _patches.TABLE.patches}
    listed = {str(name) for name in _names.NAMES}
    assert len(used) > 40
    unlisted = {name for name in used if not any(_is_in(name, entry) for entry in listed)}
    assert unlisted == set()


def _is_in(name: str, entry: str) -> bool:
    """Return whether an entry of the table is the name, or a name inside of it."""
    return f"{entry}.".startswith(f"{name}.")


# For each feature, the checks without it and their expected outcomes.
_CHECKS: dict[str, dict[str, str]] = {
    _names.VMAP: {"vmap": "NotImplementedError: Batching rule for 'hostcall' not implemented"},
    _names.CONTROL_FLOW: {
        "scan": "NotImplementedError: Effects not supported in `scan`: [HostCall (a hostcall.jax"
        ".call that says neither pure=True nor wait=False; hostcall does not know how this version "
        "of JAX",
        "scan_of_pure_calls": "-3.0",
    },
    _names.REMATERIALIZATION: {
        "rematerialized": "NotImplementedError: Effects not supported in ",
    },
    _names.REDUCERS: {"reducer": "NotImplementedError: hostcall.jax.call of add"},
    _names.EXECUTION: {},
    _names.FAILED_TOKENS: {},
    _names.OVERLAP: {},
    _names.DISK: {},
    _names.NO_TRACING: {"no_tracing": "RuntimeError: re-tracing function _negated at "},
    _names.SETTINGS: {"setting_on_another_thread": "False"},
    _names.DERIVATIVES: {"gradient": "NotImplementedError: Differentiation rule for 'hostcall'"},
    _names.TRACING: {"without_arguments": "TypeError: "},
    _names.TO_TF: {"to_tf": "NotImplementedError: hostcall.jax: JAX "},
    _names.JAX_CALLBACKS: {"to_tf": "[-0. -1.]", "jax_callback_to_tf": "NotImplementedError: "},
    _names.SOURCE_PLACES: {},
}


def _found_without(
    feature: str, checks: list[str], fresh_jax: Template
) -> tuple[list[Name], dict[str, Any]]:
    """Return the names of a feature, and what becomes of the checks where JAX has none of them."""
    hidden = [name for name in _names.NAMES if name.feature == feature]
    names = [[name.module, name.attribute] for name in hidden]
    ended = fresh_jax.run(report, names, checks)
    assert ended.status == 0, ended.said
    found: dict[str, Any] = json.loads(ended.printed.splitlines()[-1])
    assert found["tensorflow"] == "[-1. -2.]"
    return hidden, found


@reads_programs_of_jax
@pytest.mark.parametrize("feature", _CHECKS)
def test_missing_names_switch_their_feature_off(feature: str, fresh_jax: Template) -> None:
    checks = _CHECKS[feature]
    hidden, found = _found_without(feature, ["call", *checks], fresh_jax)
    listed = ", ".join(map(str, hidden))
    without = hidden[0].without
    assert (
        f"no {listed}, which hostcall needs for this: {feature}. Without it, {without} "
        in found["warning"]
    )
    assert found["call"] == "[-0. -1.]"
    for check, expected in checks.items():
        assert found[check].startswith(expected), found[check]


def test_hostcall_jax_says_which_names_it_cannot_do_without(fresh_jax: Template) -> None:
    hidden, found = _found_without(_names.CALLS, ["callback_of_arrays"], fresh_jax)
    for error in (found["import"], found["callback_of_arrays"]):
        assert error.startswith("ImportError: hostcall.jax does not work with JAX ")
        assert f"which has no {', '.join(map(str, hidden))}." in error


_OLD = """
import jax, jaxlib.version
jax.__version__, jax.__version_info__ = "0.7.2", (0, 7, 2)
jaxlib.__version__, jaxlib.version.__version_info__ = "0.7.2", (0, 7, 2)
try:
    import {module}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(("module", "what"), [("hostcall.jax", "JAX"), ("hostcall_mlir", "jaxlib")])
def test_older_versions_are_refused(module: str, what: str, run_python: Any) -> None:
    said = run_python(_OLD.format(module=module))
    assert f"{module} needs {what} 0.8 or later, and this is 0.7.2" in said
    assert "pip install 'jax>=0.8,<0.13'" in said

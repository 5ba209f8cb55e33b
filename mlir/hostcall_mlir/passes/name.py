"""`hostcall-name` and `hostcall-resolve`: names in the place of callback ids, and the inverse.

A callback id means something in the process whose registry gave it. A qualified name,
`module:qualname`, can be looked up in any process. `names`, or the JSON object in `file`, maps ids
to names. Calls that have a name, or for the inverse an id, keep it; those that the map lacks are
errors. A name that stands for several ids becomes the lowest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import PassError, report_all
from hostcall_mlir.passes.base import Options, Pass, read_ids

_OPTIONS = {
    "names": "3=pkg.mod:fn,4=pkg.mod:other",
    "file": 'a JSON object, {"3": "pkg.mod:fn"}',
}


def _name(module: ir.Module, options: Options) -> None:
    names = read_ids(options, "names", PASS.name)
    for name in names.values():
        if not custom_calls.is_name(name):
            raise PassError(
                f"{PASS.name}: '{name}' is no name: module:qualname is one, or a word, with or "
                "without #2 behind it"
            )
    missing = f"{PASS.name}: no name is given for callback {{}}; add it to 'names'"
    _replace(module, names, missing, of_names=False)


def _resolve(module: ir.Module, options: Options) -> None:
    names = read_ids(options, "names", INVERSE.name)
    ids = {names[callback_id]: callback_id for callback_id in sorted(names, reverse=True)}
    missing = f"{INVERSE.name}: no callback id is given for '{{}}'; add it to 'names'"
    _replace(module, ids, missing, of_names=True)


PASS = Pass("hostcall-name", "write qualified names in the place of callback ids", _name, _OPTIONS)
INVERSE = Pass(
    "hostcall-resolve", "write callback ids in the place of qualified names", _resolve, _OPTIONS
)


def _replace(
    module: ir.Module, replacements: Mapping[Any, int | str], missing: str, of_names: bool
) -> None:
    """Replace the callbacks of calls, either all names or all others."""
    problems = []
    for op in custom_calls.host_calls(module):
        callback = custom_calls.callback_of(op)
        if isinstance(callback, str) != of_names:
            continue
        if callback in replacements:
            custom_calls.set_callback(op, replacements[callback])
        else:
            problems.append((op, missing.format(callback)))
    report_all(problems)

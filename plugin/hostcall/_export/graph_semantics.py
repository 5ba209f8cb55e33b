"""Graph mode's values and errors in exported programs, which cannot call TensorFlow's kernels."""

from __future__ import annotations

import warnings

from hostcall._compiler import plan
from hostcall._compiler.analyses import node_places
from hostcall._compiler.plan import Whole
from hostcall._tf.types import ConcreteFunction, FunctionDefLibrary

_KEPT = """\
{place}: the program computes with XLA, not as TensorFlow's kernels do,

{listed}

Do this outside of the function, or in a callback. If XLA's values and errors will do, there and in
the whole program, say so before the export: hostcall.configure(semantics="xla")"""


def written(library: FunctionDefLibrary, traced: ConcreteFunction, place: str) -> Whole:
    """Write a function of a library as one program; warn of what XLA computes otherwise."""
    with node_places.found_by(node_places.locator(traced)):
        whole = plan.make_whole(library, traced.function_def.signature.name)
        kept = dict.fromkeys(
            f"  - op '{node.name}' ({node.op}){node_places.of_written(node, function)}: {reason}"
            for node, function, reason in whole.kept
        )
    if kept:
        message = _KEPT.format(place=place, listed="\n".join(kept))
        warnings.warn(message, UserWarning, stacklevel=6)
    return whole

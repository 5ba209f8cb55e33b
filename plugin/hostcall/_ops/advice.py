"""The declarations that messages suggest for results of unknown shape."""

from __future__ import annotations

import types
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from hostcall._functions.specs import parameters
from hostcall._functions.user_function import CALLBACK
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec
from hostcall._ops.structures import BoundedSpec, Spec, is_known

_BLANK = "..."  # a blank for the user to fill in: one size, or all sizes
_UNNAMED = "function"  # the placeholder for a function without a name

# Functions whose results are vectors with a length that depends on the values, and is at most the
# number of elements of the argument. Each comes with its spelling in the user's code.
_VARYING = (
    (np.unique, "np.unique"),
    (np.nonzero, "np.nonzero"),
    (np.flatnonzero, "np.flatnonzero"),
)


def in_lines(spec: CallbackSpec, known: Sequence[Spec | None], *more: str) -> str:
    """Return three lines: how the known specs of all results become complete, and what is more."""
    line = declaration(spec, known)
    if _name_of_varying(spec.function):
        said = "Its sizes depend on the values. Declare bounds before the call:"
        return "\n".join([said, f"    {line}", " ".join(more)])
    if "#" not in line and _name_to_write(spec.function) == _UNNAMED:
        line += "    # give the function a name, and the name to the op"
    if (constants := _constants(spec, known)) is not None:
        set_shapes, tout = constants
        after = f"{'; '.join(set_shapes)} after it, where y is its result."
        more = (f"Or, for constants, {tout} in the call, or {after}", *more)
    if isinstance(spec, EagerSpec):
        more = (*more, 'result="trace" declares what TensorFlow finds by tracing the function.')
    said = "Write, with sizes for each `...` ([] is a scalar), before the call:"
    return "\n".join([said, f"    {line}", " ".join(more)])


def what_is_known(spec: Spec) -> str:
    """Describe the known part of an incomplete shape; "" if nothing is known."""
    return "" if spec.shape.rank is None else f", but for {spec.shape}"


def declaration(spec: CallbackSpec, known: Sequence[Spec | None]) -> str:
    """Return the line that declares the results by a shape function, `_` for unknown sizes."""
    # It has the function's own name and parameters, and as many results as the op.
    names = parameters(spec.function, spec.inputs.count)
    rule = f"lambda {', '.join(names)}: " if names else ""
    results = _bounded(spec, names[0]) if _name_of_varying(spec.function) else _result(spec, known)
    result = f"result={rule}{results}"
    if spec.user.called_as == CALLBACK:
        return f"@hostcall.callback({result})    # in the place of the result that it has"
    return f"hostcall.declare({_name_to_write(spec.function)}, {result})"


def declaration_as_seen(spec: CallbackSpec, known: Sequence[Spec | None]) -> str:
    """Return the line of `declaration`, with sizes that calls have returned for the blanks."""
    if spec.seen_shapes is None or _name_of_varying(spec.function):
        return declaration(spec, known)
    added, remark = spec.seen_shapes.added_to(known)
    line = declaration(spec, added)
    return f"{line}{'; ' if '#' in line else '    # '}{remark}" if remark else line


def partitioning_is_fine(spec: CallbackSpec) -> str:
    """Return the line by which the user accepts partitioning."""
    if spec.user.called_as == CALLBACK:
        return "@hostcall.callback(..., route='partition')"
    return f"hostcall.declare({_name_to_write(spec.function)}, route='partition')"


def _name_to_write(function: object) -> str:
    """Return the name by which the user can refer to a function."""
    if known := _name_of_varying(function):
        return known
    name = str(getattr(function, "__name__", ""))
    if not name.isidentifier():
        return _UNNAMED
    return f"the_object.{name}" if isinstance(function, types.MethodType) else name


def _name_of_varying(function: object) -> str:
    """Return the spelling of a function in `_VARYING`, or ""."""
    return next((name for one, name in _VARYING if one is function), "")


def _bounded(spec: CallbackSpec, argument: str) -> str:
    """Return the results of a function in `_VARYING` as a user writes them: one, or a list."""
    bound = f"[{argument}.shape.num_elements()]"
    dtypes = map(dtype_text, spec.outputs.dtypes)
    results = [f"hostcall.BoundedSpec({bound}, {dtype}, [0])" for dtype in dtypes]
    return _listed(spec, results)


def _constants(spec: CallbackSpec, known: Sequence[Spec | None]) -> tuple[list[str], str] | None:
    """Return the lines that declare constant sizes, those after the call and the one in it."""
    # Return None where these lines would depend on the structure of the results.
    if not spec.outputs.trivial or spec.user.called_as == CALLBACK:
        return None
    results = {
        "y" if spec.outputs.alone else f"y[{index}]": said or tf.TensorSpec(None)
        for index, said in enumerate(known)
    }
    lines = [f"{y}.set_shape({_shape(said)})" for y, said in results.items() if not is_known(said)]
    return lines, f"Tout={_result(spec, known)}"


def _result(spec: CallbackSpec, known: Sequence[Spec | None]) -> str:
    pairs = zip(known, spec.outputs.dtypes, strict=True)
    return _listed(spec, [spec_text(said or tf.TensorSpec(None, dtype)) for said, dtype in pairs])


def _listed(spec: CallbackSpec, results: list[str]) -> str:
    """Return the results as a user writes them: one, or a list."""
    return results[0] if spec.outputs.alone and len(results) == 1 else f"[{', '.join(results)}]"


def spec_text(spec: Spec) -> str:
    """Return a spec as source text, with blanks for sizes that are not known."""
    dtype = dtype_text(spec.dtype)
    if isinstance(spec, BoundedSpec):
        return f"hostcall.BoundedSpec({_shape(spec)}, {dtype}, {list(spec.dynamic_dims)})"
    return f"tf.TensorSpec({_shape(spec)}, {dtype})"


def dtype_text(dtype: tf.DType) -> str:
    """Return a dtype as source text."""
    return f"tf.{dtype.name}" if hasattr(tf, dtype.name) else f'"{dtype.name}"'


def _shape(spec: Spec) -> str:
    if spec.shape.rank is None:
        return f"[{_BLANK}]"
    return f"[{', '.join(_BLANK if size is None else str(size) for size in spec.shape)}]"

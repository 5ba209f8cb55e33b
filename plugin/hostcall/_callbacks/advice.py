"""The declarations that messages suggest for results of unknown shape."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, EagerSpec
from hostcall._callbacks.structures import BoundedSpec, Spec, is_known
from hostcall._functions.user_function import CALLBACK

_BLANK = "..."  # a blank for the user to fill in: one size, or all sizes
_BOUND = "Its sizes depend on the values: declare bounds"
_UNNAMED = "function"  # the placeholder for a function without a name

# Functions whose results are vectors with a length that depends on the values, and is at most the
# number of elements of the argument. Each comes with its spelling in the user's code.
_VARYING = (
    (np.unique, "np.unique"),
    (np.nonzero, "np.nonzero"),
    (np.flatnonzero, "np.flatnonzero"),
)

_TAKEN = frozenset({"tf", "hostcall"})  # names that the suggested lines use themselves


def in_lines(spec: CallbackSpec, known: Sequence[Spec | None]) -> str:
    """Return the advice that makes the known specs of all results complete, on several lines."""
    if _name_of_varying(spec.function):
        return f"{_BOUND}, before the call:\n\n    import hostcall\n    {declaration(spec, known)}"
    text = "Write the sizes in the place of each `...`; [] is a scalar."
    if (constants := _constants(spec, known)) is not None:
        set_shapes, tout = constants
        lines = "".join(f"    {line}\n" for line in set_shapes)
        text += f" If they are constants, after the call, where y is what it returns:\n\n{lines}\n"
        text += f"or in the call:\n\n    {tout}\n\n"
    text += f"If they follow from {_sources(spec)}, before the call"
    if isinstance(spec, EagerSpec):
        text += ' (or result="trace", if TensorFlow may trace the function to find them)'
    text += f":\n\n    import hostcall\n    {declaration(spec, known)}"
    unnamed = _name_to_write(spec.function) == _UNNAMED
    return f"{text}    # give the function a name, and the name to the op" if unnamed else text


def in_one_line(spec: CallbackSpec, known: Sequence[Spec | None]) -> str:
    """Return the same advice in one line, for the log."""
    if _name_of_varying(spec.function):
        return f"{_BOUND[0].lower()}{_BOUND[1:]}, before the call: {declaration(spec, known)}"
    text = "write the sizes in the place of each `...` ([] is a scalar). "
    if (constants := _constants(spec, known)) is not None:
        set_shapes, tout = constants
        text += f"If they are constants: {'; '.join(set_shapes)} after the call, where y is what "
        text += f"it returns; or {tout} in the call. "
    text += f"If they follow from {_sources(spec)}, before the call: "
    return text + declaration(spec, known)


def what_is_known(spec: Spec) -> str:
    """Describe the known part of an incomplete shape."""
    if spec.shape.rank is None:
        return "nothing is known of it, not even how many dimensions it has"
    return f"all that is known is {spec.shape}"


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
    """Return the same line, with sizes that calls have returned in place of the blanks."""
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


def parameters(
    function: Callable[..., Any], count: int, taken: Collection[str] = _TAKEN
) -> list[str]:
    """Return argument names for a shape function: the function's parameter names, if any."""
    found: list[inspect.Parameter] = []
    with contextlib.suppress(TypeError, ValueError):  # some C functions have no signature
        found = [*inspect.signature(function).parameters.values()]
    names = [
        f"{one.name}_" if one.name in taken else one.name
        for one in found
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    made_up = ["x", "y", "z", *(f"x{i}" for i in range(len(names) + count))]
    return [*names, *(name for name in made_up if name not in names)][:count]


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


def _sources(spec: CallbackSpec) -> str:
    shapes = [f"{name}.shape" for name in parameters(spec.function, spec.inputs.count)]
    if len(shapes) > 2:
        shapes[2:] = ["..."]
    return f"the inputs ({', '.join(shapes)})" if shapes else "something else"


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

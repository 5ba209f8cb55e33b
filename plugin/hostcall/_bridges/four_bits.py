"""Integers of four bits between TensorFlow and the programs of XLA, for JAX.

TensorFlow's tensors have one int4 or uint4 in a byte, and XLA's programs two. So a JAX program
takes and returns integers of eight bits, and converts inside; TensorFlow casts them outside. It
casts neither int2 and uint2 nor float4_e2m1fn, and its XLA kernels have none of these.

A TensorFlow function that stock TensorFlow compiles has nobody who casts, unless hostcall takes all
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import tensorflow as tf

from hostcall._functions import source_location
from hostcall._ops import settings
from hostcall._tf import concrete_functions
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import function_names, op_kinds
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import ConcreteFunction, NodeDef

_WIDE = {
    np.dtype(tf.as_dtype(number).as_numpy_dtype): np.dtype(tf.as_dtype(wide).as_numpy_dtype)
    for number, wide in defs.WIDE.items()
}
_REFUSED = {"int2": "int8", "uint2": "uint8", "float4_e2m1fn": "float32"}

_COMPILED = (
    "{place}: TensorFlow compiles {function}, and would hand over its {dtypes} to XLA wrongly: XLA "
    "has two of them in a byte, and TensorFlow one. Leave jit_compile=True out, or let hostcall "
    "take all functions: hostcall.configure(functions='all'). Or let that function take and return "
    "integers of eight bits:\n\n"
    "    @tf.function(jit_compile=True)\n"
    "    def function(x):\n"
    "        x = tf.cast(x, tf.dtypes.experimental.int4)\n"
    "        ...\n"
    "        return tf.cast(result, tf.int8)"
)


class Border(NamedTuple):
    """A function that takes and returns wide integers for another one, with its arguments."""

    jitted: Any
    args: Any  # ShapeDtypeStructs in structures
    kwargs: dict[str, Any]
    inside: tuple[list[Any], list[Any]]  # the other's dtypes of all arguments and of all results

    def narrow(self, exported: Any) -> tuple[list[Any], list[Any]]:
        """Return the other function's abstract values, by the Exported of this one."""
        both = zip((exported.in_avals, exported.out_avals), self.inside, strict=True)
        takes, gives = (
            [aval.update(dtype=dtype) for aval, dtype in zip(avals, dtypes, strict=True)]
            for avals, dtypes in both
        )
        return takes, gives


def border_of(jitted: Any, args: Any, kwargs: dict[str, Any]) -> Border | None:
    """Return the border of a function that has integers of four bits there, or None.

    Raises:
      TypeError: when it takes or returns other values of less than a byte.
    """
    results = jitted.trace(*args, **kwargs).out_info
    for what, values in (("argument", args), ("argument", kwargs), ("result", results)):
        _check(jitted, what, values)
    inside = [leaf.dtype for leaf in jax.tree.leaves((args, kwargs))]
    returned = [leaf.dtype for leaf in jax.tree.leaves(results)]
    if _WIDE.keys().isdisjoint([*inside, *returned]):
        return None

    def widened(*args: Any, **kwargs: Any) -> object:
        leaves, tree = jax.tree.flatten((args, kwargs))
        pairs = zip(leaves, inside, strict=True)
        args, kwargs = jax.tree.unflatten(tree, [_converted(leaf, dtype) for leaf, dtype in pairs])
        return jax.tree.map(_wide, jitted(*args, **kwargs))

    args, kwargs = jax.tree.map(_wide_struct, (args, kwargs))
    return Border(jax.jit(widened), args, kwargs, (inside, returned))


def cast(tensors: Any) -> list[Any]:
    """Cast tensors of four bits to eight."""
    return [tf.cast(tensor, defs.wide(tensor.dtype)) for tensor in tensors]


def cast_back(tensors: Any, avals: Any) -> list[Any]:
    """Cast tensors to the dtypes of four bits that abstract values have."""
    return [
        tf.cast(tensor, aval.dtype) if aval.dtype in _WIDE else tensor
        for tensor, aval in zip(tensors, avals, strict=True)
    ]


def check_compiled(concrete: ConcreteFunction, place: str) -> None:
    """Raise a ValueError if stock TensorFlow compiles a call in a function that has four bits."""
    if settings.current.functions == settings.ALL:
        return
    functions = defs.by_name(concrete_functions.library_of(concrete, concrete.graph.as_graph_def()))

    def uncompiled(name: str) -> Iterator[str]:
        for node in defs.calls_in(functions[name], functions) if name in functions else ():
            for called in defs.called_functions(node, functions):
                function = functions.get(called)
                if function is None or not (defs.is_compiled(node) or defs.is_compiled(function)):
                    yield called
                else:
                    _check_border(functions, called, place)

    for _ in reach([concrete.function_def.signature.name], uncompiled):
        pass


def _check_border(functions: Mapping[str, Any], name: str, place: str) -> None:
    crossing = defs.fixed_types(functions[name].signature) & defs.WIDE.keys()
    reached = defs.reachable_in(functions, name).values()
    if crossing and not any(_is_taken(node, functions) for f in reached for node in f.node_def):
        dtypes = " and ".join(sorted(tf.as_dtype(dtype).name for dtype in crossing))
        function = function_names.plain(name)
        raise ValueError(_COMPILED.format(place=place, function=function, dtypes=dtypes))


def _is_taken(node: NodeDef, functions: Mapping[str, Any]) -> bool:
    """Return whether hostcall takes the functions with a node, whose kernels are then its own."""
    if op_kinds.calls_python(node):
        return True
    return node.op not in functions and not op_kinds.has_xla_kernel(node)


def has_four_bits(dtypes: Iterable[Any]) -> bool:
    """Return whether some of TensorFlow's dtypes have four bits."""
    return any(dtype.as_datatype_enum in defs.WIDE for dtype in dtypes)


def _check(jitted: Callable[..., Any], what: str, values: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        if (wide := _REFUSED.get(str(leaf.dtype))) is not None:
            name = jax.tree_util.keystr(path)
            raise TypeError(
                f"hostcall.jax.to_tf of {source_location.of_function(jitted)}: {what} {name} is of "
                f"dtype {leaf.dtype}, which TensorFlow cannot hand over to a program, and cannot "
                f"cast. Let the function take and return {wide}, and convert inside:\n\n"
                f"    hostcall.jax.to_tf(lambda x: function(x.astype(jnp.{leaf.dtype}))"
                f".astype(jnp.{wide}))"
            )


def _wide_struct(struct: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(struct.shape, _WIDE.get(struct.dtype, struct.dtype))


def _wide(value: Any) -> jax.Array:
    return _converted(value, _WIDE.get(value.dtype, value.dtype))


def _converted(value: Any, dtype: Any) -> jax.Array:
    return value if value.dtype == dtype else value.astype(dtype)

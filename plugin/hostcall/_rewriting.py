"""What takes the place of a function when TensorFlow creates its kernel."""

from __future__ import annotations

from typing import Any

from hostcall import _library, _ordering, _routes, _routing
from hostcall import _tf_private as private
from hostcall._split import Splitter


def rewrite_for_kernel(serialized: bytes, entry: str) -> tuple[bytes, str, bool]:
    """Called when TensorFlow creates the kernel of a must-compile function.

    Args:
      serialized: a FunctionDefLibrary with the function and all that it reaches.
      entry: the name of the function.

    Returns:
      A FunctionDefLibrary with the new functions, the name of the one that takes the place of
      `entry`, which is `entry` itself where nothing is to be done, and whether it runs on the host.
      The same input gives the same output, names included.
    """
    library = private.function_pb2.FunctionDefLibrary.FromString(serialized)
    splitter = new_splitter(library)
    if not splitter.is_cluster(entry) and splitter.must_split(entry):
        name = splitter.split(entry)
        new = private.function_pb2.FunctionDefLibrary(function=splitter.functions.values())
        split = True
    else:
        new, name = _ordering.order_side_effects(library, entry)
        split = False
    # Otherwise the kernel creator adds them, and they would outlive the function.
    private.own_functions(entry, list(new.function))
    return new.SerializeToString(), name, split


def new_splitter(library: Any) -> Splitter:
    """A splitter that goes by what this process knows and what the user has asked for."""
    glue = _library.load("_tensorflow")
    return Splitter(
        library,
        choose=_routing.choose,
        has_kernel=lambda node: private.has_xla_kernel(glue, node),
        marked=lambda node: _routes.asked(node) == _routes.SPLIT,
    )

"""StableHLO programs that call Python, as ops of TensorFlow's: XlaCallModule."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hostcall._tf import attributes, graph_ownership, script_op_graphs
from hostcall._tf.types import NodeDef
from hostcall_runtime import Target

_keys = itertools.count(1)
_modules: weakref.WeakValueDictionary[bytes, Module] = weakref.WeakValueDictionary()


@dataclasses.dataclass(eq=False)
class Module:
    """A program in a graph. The graph owns it, and so all that its host calls call.

    Attributes:
      kind: what the user has called to make it.
      name: of the function that it was made of.
      defined_at: `file:line` of that, or "".
      targets: what the runtime calls for its callbacks.
      has_token: whether it has side effects that happen in the order of the program.
    """

    kind: str
    name: str
    defined_at: str
    targets: Sequence[Target]
    has_token: bool

    def __post_init__(self) -> None:
        self._key = str(next(_keys)).encode()
        _modules[self._key] = self

    @contextlib.contextmanager
    def called(self) -> Iterator[None]:
        """Within it the op is created, and nothing else: it is marked as one that calls Python."""
        graph_ownership.own(self)
        marks: dict[str, bool | bytes] = {}
        if self.targets:
            marks = {attributes.CALLS_PYTHON: True, attributes.MODULE: self._key}
            if self.has_token:
                marks[attributes.HAS_TOKEN] = True
        with script_op_graphs.marked_ops(marks):
            yield


def module_of(node: NodeDef) -> Module | None:
    """The module of an op, by its NodeDef; None for other ops, and where it is gone."""
    return _modules.get(node.attr[attributes.MODULE].s) if attributes.MODULE in node.attr else None


def any_module() -> bool:
    """Whether a graph of this process holds such a program."""
    return bool(_modules)


def own_modules(nodes: Iterable[Any]) -> None:
    """Lets the default graph own the modules of nodes that are copied into it."""
    for module in filter(None, map(module_of, nodes)):
        graph_ownership.own(module)

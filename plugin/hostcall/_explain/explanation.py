"""What `hostcall.explain` returns."""

from __future__ import annotations

import dataclasses
from typing import Any

from hostcall._explain.facts import Cluster, Function, HostOp, Risk, ScriptOp, short_device
from hostcall_runtime._errors import counted


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The way in which a function runs. `print` shows it as a table, a notebook as a picture.

    Attributes:
      name: the name of the function.
      functions: the function itself, then the functions that it calls and that call Python or are
        compiled. Each is listed once, however often it is called.
      script_ops: all script ops that the function reaches.
      notes: further facts that the user needs.
      risks: the ops that XLA may get wrong, in functions that stock TensorFlow compiles.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> hostcall.explain(program, tf.TensorSpec([3], tf.float32)).headline
      'one compiled program with 1 script op in it'
    """

    name: str
    functions: tuple[Function, ...]
    script_ops: tuple[ScriptOp, ...]
    notes: tuple[str, ...] = ()
    risks: tuple[Risk, ...] = ()

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters of all functions."""
        return tuple(s for f in self.functions for s in f.steps if isinstance(s, Cluster))

    @property
    def host_ops(self) -> tuple[HostOp, ...]:
        """The host ops of all functions that are no script ops."""
        return tuple(s for f in self.functions for s in f.steps if isinstance(s, HostOp))

    @property
    def boundaries(self) -> tuple[ScriptOp | HostOp, ...]:
        """The ops between compiled clusters that have advice."""
        steps = (step for f in self.functions for step in f.steps)
        return tuple(s for s in steps if isinstance(s, ScriptOp | HostOp) and s.advice)

    @property
    def headline(self) -> str:
        """One line that says how the function runs."""
        mode = self.functions[0].mode if self.functions else "host"
        compiled = {f.name for f in self.functions if f.mode != "host"}
        steps = [s for f in self.functions if f.mode == "host" for s in f.steps]
        calls = {c for s in steps if isinstance(s, HostOp) for c in s.calls} & compiled
        on_host = sum(op.route == "partition" for op in self.script_ops)
        inside = sum(op.route == "custom_call" for op in self.script_ops)
        if mode == "compiled":
            called = sum(op.in_program for op in self.host_ops)
            more = f", which calls {counted(called, 'op')} on the host" if called else ""
            return f"one compiled program with {counted(inside, 'script op')} in it{more}"
        if mode == "partitioned":
            clusters = counted(len(self.clusters), "compiled cluster")
            more = f", {inside} more in clusters" if inside else ""
            device = self.functions[0].device
            place = f" on {short_device(device)}" if device else ""
            return f"{clusters}{place} and {counted(on_host, 'script op')} on the host{more}"
        if calls:
            return f"not compiled itself; it calls {counted(len(calls), 'compiled function')}"
        return "not compiled: TensorFlow runs it on the host, op by op"

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as dicts, lists, strings and numbers."""
        return {"headline": self.headline, **dataclasses.asdict(self)}

    # Drawing code is imported on use: the import of rich alone takes a tenth of a second.

    def to_html(self) -> str:
        """Return a page that draws each function as a graph of clusters and host ops."""
        from hostcall._explain import page

        return page.page(self)

    def _repr_html_(self) -> str:
        from hostcall._explain import page

        return page.fragment(self)

    def __str__(self) -> str:
        from hostcall._explain import table

        return table.text(self)

"""What `hostcall.explain` finds out, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

from hostcall_runtime._errors import counted


def short_device(name: str) -> str:
    """A device as users write it: "XLA_CPU:0"."""
    return name.rpartition("/device:")[2]


@dataclasses.dataclass(frozen=True)
class Value:
    """An operand or a result of a script op.

    Attributes:
      dtype: its name.
      shape: as text: "(2, 3)", "(<=5,)" where a bound is known, "(None, 3)", or "<unknown>".
      known: "known", "bounded", "shape_function" (which gives it when XLA compiles) or "unknown".
      nbytes: its size, the largest where it is bounded; None where that is not known.
    """

    dtype: str
    shape: str
    known: str
    nbytes: int | None


@dataclasses.dataclass(frozen=True)
class ScriptOp:
    """A call of Python: `tf.py_function`, `tf.numpy_function`, `hostcall.callback` and so on.

    Attributes:
      node: its name in the function that it is in.
      function: the name of that function.
      path: the loops, branches and calls around it, outermost first; "" in the function explained.
      kind: what the user has called to make it.
      callback: the name of the Python function, "" where this process does not have it.
      defined_at: `file:line` of the Python function, or "".
      file, line: where the user's code calls it, or "" and None.
      stateful: whether it runs once each time, in the order of the program.
      route: "custom_call" (inside a compiled program), "partition" (on the host, between compiled
        clusters) or "plain" (the function is not compiled).
      reason: why it takes that route.
      operands, results: what goes in and out.
      follows: the path and name of what has run in Python when it begins: a script op, or a loop,
        branch or call that holds some. None where nothing has to.
      bytes_copied: what one call copies between the program and the Python function, at most; None
        where a shape is not known.
      cluster: the name of the compiled function that it is in, or None.
      takes_from, waits_for: on the host, the nodes that it has values of, and those that it only
        runs after.
      memo: whether results are kept, so that the Python function is called for new inputs alone;
        for inputs that XLA knows, when it compiles.
      advice: for an op between compiled clusters, the line to write so that it becomes part of one
        program, or why nothing helps.
      problem: for a function that a saved graph names, why this process cannot call it.
    """

    node: str
    function: str
    path: str
    kind: str
    callback: str
    defined_at: str
    file: str
    line: int | None
    stateful: bool
    route: str
    reason: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    follows: str | None
    bytes_copied: int | None
    cluster: str | None
    takes_from: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    memo: bool = False
    advice: str = ""
    problem: str = ""

    @property
    def location(self) -> str:
        """`file:line` of the call, or ""."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclasses.dataclass(frozen=True)
class Op:
    """A node of a compiled function: its name and the kind of its op."""

    node: str
    op: str


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Ops that XLA compiles into one program.

    Attributes:
      node: what calls it.
      name: of the compiled function.
      function: the function of the user's whose ops it holds.
      path: as for a ScriptOp.
      ops: the ops, constants included.
      takes_from, waits_for: as for a ScriptOp.
      compilations: how many programs XLA has made for it so far, one for each combination of sizes.
      uncompiled_runs: how often TensorFlow's kernels have run it instead.
    """

    node: str
    name: str
    function: str
    path: str
    ops: tuple[Op, ...]
    takes_from: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    compilations: int = 0
    uncompiled_runs: int = 0


@dataclasses.dataclass(frozen=True)
class HostOp:
    """An op that is no script op and is not compiled either.

    Attributes:
      node: its name.
      op: its kind.
      function: the function that it is in.
      path: as for a ScriptOp.
      reason: why it is not compiled.
      file, line: where the user's code calls it, or "" and None.
      calls: the names of the functions that it calls and that are explained too.
      in_program: whether a compiled program calls it, so that it stands between no clusters.
      takes_from, waits_for, advice: as for a ScriptOp.
    """

    node: str
    op: str
    function: str
    path: str
    reason: str
    file: str
    line: int | None
    calls: tuple[str, ...]
    takes_from: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    advice: str = ""
    in_program: bool = False

    @property
    def location(self) -> str:
        """`file:line` of the call, or ""."""
        return f"{self.file}:{self.line}" if self.file else ""


Step = ScriptOp | Cluster | HostOp


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A value that one call copies between the function's device and the host.

    Attributes:
      value: an argument, or `node:result:index`.
      to: "host" or "device".
      what: its dtype, shape and size.
    """

    value: str
    to: str
    what: Value


@dataclasses.dataclass(frozen=True)
class Function:
    """A function and how it runs.

    Attributes:
      name: of the function as TensorFlow traced it.
      path: as for a ScriptOp.
      mode: "compiled" (one XLA program), "partitioned" (clusters and host ops) or "host" (not
        compiled).
      steps: what it consists of, in an order in which it can run. Of a function that is not
        compiled, only the script ops and what leads to some, or to compiled functions.
      device: that of its clusters, where it is partitioned for another one than the CPU; else "".
      transfers: what crosses between that device and the host.
    """

    name: str
    path: str
    mode: str
    steps: tuple[Step, ...]
    device: str = ""
    transfers: tuple[Transfer, ...] = ()


@dataclasses.dataclass(frozen=True)
class Risk:
    """An op that XLA may get wrong in a function that it compiles without hostcall's help.

    Attributes:
      node, op, function: the op's name and kind, and the name of its function.
      reason: what XLA may get wrong.
      advice: what to write.
      file, line: of your code that has created it; "" and None where that is not known.
    """

    node: str
    op: str
    function: str
    reason: str
    advice: str
    file: str = ""
    line: int | None = None

    @property
    def location(self) -> str:
        """`file:line`, or ""."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclasses.dataclass(frozen=True)
class Facts:
    """How a function runs.

    Attributes:
      name: of the function.
      functions: the function itself and, after it, those that it calls and that call Python or are
        compiled. Each stands once, however often it is called.
      script_ops: all that can be reached.
      notes: what else one has to know.
      risks: the ops that XLA may get wrong, in functions that stock TensorFlow compiles.
    """

    name: str
    functions: tuple[Function, ...]
    script_ops: tuple[ScriptOp, ...]
    notes: tuple[str, ...] = ()
    risks: tuple[Risk, ...] = ()

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """All that is compiled, of all functions."""
        return tuple(s for f in self.functions for s in f.steps if isinstance(s, Cluster))

    @property
    def host_ops(self) -> tuple[HostOp, ...]:
        """What runs on the host and is no script op, of all functions."""
        return tuple(s for f in self.functions for s in f.steps if isinstance(s, HostOp))

    @property
    def boundaries(self) -> tuple[ScriptOp | HostOp, ...]:
        """What stands between compiled clusters, where that can be helped or explained."""
        steps = (step for f in self.functions for step in f.steps)
        return tuple(s for s in steps if isinstance(s, ScriptOp | HostOp) and s.advice)

    @property
    def headline(self) -> str:
        """How the function runs, in one line."""
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
        """All of it as dicts, lists, strings and numbers."""
        return {"headline": self.headline, **dataclasses.asdict(self)}

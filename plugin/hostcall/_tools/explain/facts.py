"""The facts that `hostcall.explain` finds, as dataclasses."""

from __future__ import annotations

import dataclasses


def short_device(name: str) -> str:
    """Return the name of a device as users write it: "XLA_CPU:0"."""
    return name.rpartition("/device:")[2]


@dataclasses.dataclass(frozen=True)
class ValueFacts:
    """An operand or a result of a script op.

    Attributes:
      dtype: the name of its dtype.
      shape: its shape as text: "(2, 3)", "(<=5,)" for a bounded size, "(None, 3)" or "<unknown>".
      known: "known", "bounded", "shape_function" (which gives it when XLA compiles) or "unknown".
      nbytes: its size, the largest if it is bounded; None if the size is not known.
    """

    dtype: str
    shape: str
    known: str
    nbytes: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Located:
    """Facts on an op that the user's code has created.

    Attributes:
      node: its name in the function that contains it.
      function: the name of that function.
      file, line: the place in the user's code that created it, or "" and None.
    """

    node: str
    function: str
    file: str
    line: int | None

    @property
    def location(self) -> str:
        """`file:line` in the user's code, or ""."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Explained(_Located):
    """Facts on such an op, and on the way in which it runs.

    Attributes:
      reason: why it runs as it does.
      advice: the line to write so that it runs in a better way, or why nothing helps; or "".
    """

    reason: str
    advice: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptOp(_Explained):
    """A call of Python: `tf.py_function`, `tf.numpy_function`, `hostcall.callback` and so on.

    Attributes:
      path: the loops, branches and calls around it, outermost first; "" in the function explained.
      kind: the API that made it.
      callback: the name of the Python function, or "" if this process does not have it.
      defined_at: `file:line` of the Python function, or "".
      stateful: whether it runs exactly once each time, in program order.
      route: "custom_call" (inside a compiled program), "partition" (on the host, between compiled
        clusters) or "plain" (the function is not compiled).
      operands, results: the facts on the tensors that it takes and returns.
      follows: the path and name of the op that runs before it in program order: a script op, or a
        loop, branch or call that holds script ops. None if it follows no other.
      bytes_copied: the most bytes that one call copies between the program and the Python function;
        None if a shape is not known.
      cluster: the name of the compiled function that contains it, or None.
      takes_from, waits_for: on the host, the nodes whose values it takes, and the nodes that it
        only runs after.
      memo: whether results are kept, so that only new inputs call the Python function. For inputs
        that XLA knows, the call happens while XLA compiles.
      problem: for a function that a saved graph names, why this process cannot call it.
    """

    path: str
    kind: str
    callback: str
    defined_at: str
    stateful: bool
    route: str
    operands: tuple[ValueFacts, ...]
    results: tuple[ValueFacts, ...]
    follows: str | None
    bytes_copied: int | None
    cluster: str | None
    takes_from: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    memo: bool = False
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class OpFacts:
    """A node of a compiled function: its name and the type of its op."""

    node: str
    op: str


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Ops that XLA compiles into one program.

    Attributes:
      node: the node that calls it.
      name: the name of the compiled function.
      function: the user's function that its ops come from.
      path: as for a ScriptOp.
      ops: the ops, constants included.
      takes_from, waits_for: as for a ScriptOp.
      compilations: the number of programs that XLA has made for it so far, one per set of sizes.
      uncompiled_runs: the number of times that TensorFlow's kernels have run it instead.
    """

    node: str
    name: str
    function: str
    path: str
    ops: tuple[OpFacts, ...]
    takes_from: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    compilations: int = 0
    uncompiled_runs: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostOp(_Explained):
    """An op that runs on the host and is not a script op.

    Attributes:
      op: its type.
      path: as for a ScriptOp.
      calls: the names of the explained functions that it calls.
      in_program: whether a compiled program calls it. If so, it does not stand between clusters.
      takes_from, waits_for: as for a ScriptOp.
    """

    op: str
    path: str
    calls: tuple[str, ...]
    takes_from: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    in_program: bool = False


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
    what: ValueFacts


@dataclasses.dataclass(frozen=True)
class FunctionFacts:
    """A function and how it runs.

    Attributes:
      name: the name of the function as TensorFlow traced it.
      path: as for a ScriptOp.
      mode: "compiled" (one XLA program), "partitioned" (clusters and host ops) or "host" (not
        compiled).
      steps: its steps, in an order in which they can run. A function that is not compiled lists
        only the script ops, and the steps that lead to script ops or compiled functions.
      device: the device of its clusters, if it is partitioned for another than the CPU; else "".
      transfers: the values that cross between that device and the host.
    """

    name: str
    path: str
    mode: str
    steps: tuple[Step, ...]
    device: str = ""
    transfers: tuple[Transfer, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Risk(_Explained):
    """An op, `op` by its type, that XLA may get wrong in a function that hostcall leaves alone."""

    op: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueCheck(_Located):
    """An error of values that a compiled program raises, as TensorFlow's own kernel does.

    Attributes:
      op: the type of the op.
      error: the name of the error's class in `tf.errors`.
      message: the beginning of its message.
    """

    op: str
    error: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewritten(_Located):
    """An op whose value XLA's kernel computes differently, and which has graph mode's all the same.

    Attributes:
      op: the type of the op.
      difference: what XLA's kernel does.
      on_host: whether TensorFlow's kernel computes it on the host; else it is written in other ops.
    """

    op: str
    difference: str
    on_host: bool

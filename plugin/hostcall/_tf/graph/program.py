"""A program as objects: functions with nodes, and values that know their users.

A function is read when a pass first asks for its nodes, and written once, when all passes are done.
Attributes stay protobuf values, and no type is worked out that no pass asks for. Names are given
when something is made and never change. Nodes keep the order in which they were made or placed, and
nothing is ordered by a hash, so equal input gives equal output.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds, protos, text
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import AttrValue, FunctionDef, NodeDef, OpDef


class Value:
    """A result of a node; an argument of a function is a node of its own, which has no op."""

    __slots__ = ("_dtype", "name", "node", "users")

    def __init__(self, name: str, node: Node, dtype: int = 0) -> None:
        self.name = name  # as inputs call it
        self.node = node
        self.users: dict[Node, None] = {}  # the nodes that take it; function results are not noted
        self._dtype = dtype

    def __str__(self) -> str:
        results = self.node.results if self.node.op else ()
        return f"%{self.node.name}" + (f":{results.index(self)}" if len(results) > 1 else "")

    @property
    def dtype(self) -> int:
        """The number of the value's dtype."""
        if not self._dtype:
            _ = self.node.results  # finds the dtypes of all
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: int) -> None:
        self._dtype = dtype


class Node:
    """An op in a function, with the values that it takes and the nodes that it waits for."""

    __slots__ = (
        *("_controls", "_operands", "_results", "_values", "function"),
        *("is_rewired", "name", "op", "proto", "waiters"),
    )

    def __init__(self, function: Function, proto: NodeDef) -> None:
        self.function = function
        self.proto = proto
        self.name = proto.name
        self.op = proto.op
        self.waiters: dict[Node, None] = {}  # the nodes with a control edge from this one
        self.is_rewired = False
        self._operands: tuple[Value, ...] = ()
        self._controls: tuple[Node, ...] = ()
        self._values: dict[str, Value] = {}
        self._results: list[Value] | None = None

    def __str__(self) -> str:
        line = f"%{self.name} = {self.op}({', '.join(map(str, self._operands))})"
        line += f" {{{text.attributes(self.attr)}}}" if self.attr else ""
        return line + _awaited(self._controls)

    @property
    def attr(self) -> MutableMapping[str, AttrValue]:
        """The attributes, to read and to write."""
        return self.proto.attr

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that the node takes."""
        return self._operands

    @operands.setter
    def operands(self, values: Iterable[Value]) -> None:
        for value in self._operands:
            value.users.pop(self, None)
        self._operands = tuple(values)
        for value in self._operands:
            value.users[self] = None
        self.is_rewired = True

    @property
    def controls(self) -> tuple[Node, ...]:
        """The nodes that this one waits for besides those whose values it takes."""
        return self._controls

    @controls.setter
    def controls(self, nodes: Iterable[Node]) -> None:
        for node in self._controls:
            node.waiters.pop(self, None)
        self._controls = tuple(dict.fromkeys(nodes))
        for node in self._controls:
            node.waiters[self] = None
        self.is_rewired = True

    @property
    def sources(self) -> list[Node]:
        """The nodes that this one follows, in the order of its inputs."""
        return [value.node for value in self._operands] + [*self._controls]

    def read(self, operands: list[Value], controls: list[Node]) -> None:
        """Take inputs that are in the NodeDef already."""
        self._operands, self._controls = tuple(operands), tuple(controls)
        for value in operands:
            value.users[self] = None
        for node in controls:
            node.waiters[self] = None

    def value(self, result: str) -> Value:
        """Return the result that inputs call `result`, such as "z:0"."""
        found = self._values.get(result)
        if found is None:
            found = self._values[result] = Value(f"{self.name}:{result}", self)
        return found

    @property
    def results(self) -> list[Value]:
        """All results, with their dtypes."""
        if self._results is None:
            self._results = []
            for name, types in defs.output_types(self, self.function.program).items():
                for i, dtype in enumerate(types):
                    value = self.value(f"{name}:{i}")
                    value.dtype = dtype
                    self._results.append(value)
        return self._results

    @property
    def is_stateful(self) -> bool:
        """Whether TensorFlow calls the op stateful."""
        return bool(defs.definition_of(self, self.function.program).is_stateful)

    def write(self) -> NodeDef:
        """Bring the NodeDef up to date."""
        if self.proto.op != self.op:
            self.proto.op = self.op
        if self.is_rewired:
            controls = (f"^{node.name}" for node in self._controls)
            self.proto.input[:] = [*(value.name for value in self._operands), *controls]
        return self.proto


class CutPart(NamedTuple):
    """Nodes that were cut out of a function."""

    function: Function  # holds them, and has no results yet
    taken: list[Value]  # the values of the old function that are its arguments
    controls: list[Node]  # the nodes of the old function that its nodes waited for


class Function:
    """A function of a program."""

    def __init__(self, program: ProgramModel, proto: FunctionDef, name: str = "") -> None:
        self.program = program
        self.proto = proto
        self.name = proto.signature.name = name or proto.signature.name

    def __str__(self) -> str:
        taken = (f"{value}: {text.dtype(value.dtype)}" for value in self.arguments)
        returned = (f"{name}: {value}" for name, value in self.results.items())
        header = f"@{self.name}({', '.join(taken)}) -> ({', '.join(returned)})"
        header += _awaited(self.awaited.values())
        return "\n  ".join([header, *map(str, self.nodes)])

    @property
    def signature(self) -> OpDef:
        """The signature; writing the function sets the dtypes in it."""
        return self.proto.signature

    @functools.cached_property
    def arguments(self) -> list[Value]:
        """The values that callers pass."""
        return [self._argument(arg.name, arg.type) for arg in self.signature.input_arg]

    def _argument(self, name: str, dtype: int) -> Value:
        return Value(name, Node(self, protos.node_def_pb2.NodeDef(name=name)), dtype)

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """The nodes, in the order in which they were made or placed."""
        self._written = [Node(self, proto) for proto in self.proto.node_def]
        for node in self._written:
            self._known[f"^{node.name}"] = node
        for node in self._written:
            operands: list[Value] = []
            controls: list[Node] = []
            for name in node.proto.input:
                found = self._known.get(name) or self._find(name)
                (controls if name[0] == "^" else operands).append(found)
            node.read(operands, controls)
        return [*self._written]

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        """The values and nodes that were read, by the inputs that stand for them."""
        values = {argument.name: argument for argument in self.arguments}
        return values | {f"^{name}": value.node for name, value in values.items()}

    def _find(self, given: str) -> Any:
        if given not in self._known:
            name, _, result = given.partition(":")
            self._known[given] = self._known[f"^{name}"].value(result)
        return self._known[given]

    # The name by which helpers of FunctionDefs ask for the nodes.
    node_def = property(lambda self: self.nodes)

    @functools.cached_property
    def results(self) -> dict[str, Value]:
        """The values that the function returns, by the names of its results."""
        _ = self.nodes
        results = self.signature.output_arg
        return {result.name: self._find(self.proto.ret[result.name]) for result in results}

    @functools.cached_property
    def awaited(self) -> dict[str, Node]:
        """The nodes that callers wait for, by the names of the control outputs."""
        _ = self.nodes
        names = self.signature.control_output
        return {name: self._find(f"^{self.proto.control_ret[name]}") for name in names}

    def name_awaited(self) -> None:
        """Name each control output once, as TensorFlow demands: after its node."""
        named = {node.name: node for node in self.awaited.values()}
        self.awaited = dict(sorted(named.items()))

    def add_argument(self, name: str, dtype: int) -> Value:
        """Add an argument behind the others."""
        self.arguments.append(self._argument(name, dtype))
        self.signature.input_arg.add(name=name, type=dtype)
        return self.arguments[-1]

    def add_result(self, name: str, value: Value) -> None:
        """Return one more value."""
        self.results[name] = value
        self.signature.output_arg.add(name=name, type=value.dtype)

    def add(
        self,
        name: str,
        op: str,
        operands: Iterable[Value] = (),
        controls: Iterable[Node] = (),
        before: Node | None = None,
        like: Node | None = None,
    ) -> Node:
        """Add a node, at the end or before another one, perhaps with the attributes of another."""
        proto = protos.node_def_pb2.NodeDef() if like is None else protos.copy_of(like.proto)
        proto.name = name
        node = Node(self, proto)
        node.op, node.operands, node.controls = op, operands, controls
        self.nodes.insert(len(self.nodes) if before is None else self.nodes.index(before), node)
        return node

    def add_call(
        self, name: str, called: Function, operands: Iterable[Value], controls: Iterable[Node]
    ) -> Node:
        """Add a call of a function at the end."""
        signature = called.signature
        node = Node(self, defs.call_node(name, signature, (), signature.is_stateful))
        node.operands, node.controls = operands, controls
        self.nodes.append(node)
        return node

    def erase(self, nodes: Collection[Node]) -> None:
        """Remove nodes, whose values nothing takes any more."""
        for node in nodes:
            node.operands = node.controls = ()
        self.nodes[:] = [node for node in self.nodes if node not in nodes]

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make the nodes and the results of this function take another value."""
        for user in [user for user in old.users if user.function is self]:
            user.operands = [new if value is old else value for value in user.operands]
        self.results |= {name: new for name, value in self.results.items() if value is old}

    def replace_waits(self, old: Collection[Node], new: Node) -> None:
        """Make what waits for one of some nodes wait for another one, in this function."""
        waiters = dict.fromkeys(w for node in old for w in node.waiters if w.function is self)
        for waiter in waiters:
            waiter.controls = [new if node in old else node for node in waiter.controls]
        self.awaited |= {name: new for name, node in self.awaited.items() if node in old}

    def cut(self, name: str, nodes: Sequence[Node], constants: Collection[Node]) -> CutPart:
        """Move nodes into a function of their own, with copies of the `constants` they need."""
        part = self.program.add(protos.function_pb2.FunctionDef(), name)
        # A copy waits for nothing: its value is there at once. TensorFlow drops such waits, too.
        inside = set(nodes)
        needed = dict.fromkeys(source for node in nodes for source in node.sources)
        copies = {
            node: part.add(node.name, node.op, like=node)
            for node in needed
            if node in constants and node not in inside
        }
        taken: dict[Value, Value] = {}
        controls: dict[Node, None] = {}

        def inner(value: Value) -> Value:
            if value.node in inside:
                return value
            if value.node in copies:
                return copies[value.node].value(value.name.partition(":")[2])
            if value not in taken:
                taken[value] = part.add_argument(f"hostcall_arg_{len(taken)}", value.dtype)
            return taken[value]

        for node in nodes:
            node.operands = map(inner, node.operands)
            known = inside | copies.keys()
            controls.update(dict.fromkeys(n for n in node.controls if n not in known))
            node.controls = [copies.get(n, n) for n in node.controls if n in known]
            node.function = part
        self.nodes[:] = [node for node in self.nodes if node not in inside]
        part.nodes.extend(nodes)
        return CutPart(part, [*taken], [*controls])

    def in_order(self) -> list[Node]:
        """Return the nodes in an order that respects all edges, and otherwise as they stand."""
        later = set(self.nodes)
        for node in self.nodes:
            if not later.isdisjoint(node.sources):
                return defs.in_order(self.nodes, predecessors(self.nodes))
            later.discard(node)
        return [*self.nodes]

    def live(self) -> set[Node]:
        """Return the nodes that a result or a stateful node needs."""
        starts = [*(value.node for value in self.results.values()), *self.awaited.values()]
        starts += [n for n in self.nodes if n.is_stateful and not defs.is_replaced(n)]
        return set(reach(starts, lambda node: node.sources))

    def drop_dead_nodes(self) -> None:
        """Remove the nodes that neither a result nor a stateful node needs."""
        # TensorFlow and XLA do not run these nodes either, and some may not even be able to run.
        live = self.live()
        self.erase({node for node in self.nodes if node not in live})

    def write(self) -> FunctionDef:
        """Bring the FunctionDef up to date, and return it."""
        if "nodes" not in vars(self):
            return self.proto
        for node in self.nodes:
            node.write()
        pairs = enumerate(zip(self._written, self.nodes, strict=False))
        fewer = min(len(self._written), len(self.nodes))
        same = next((i for i, (old, new) in pairs if old is not new), fewer)
        moved = [node.proto for node in self.nodes[same:]]
        del self.proto.node_def[same:]
        self.proto.node_def.extend(moved)
        self._write_signature()
        return self.proto

    def _write_signature(self) -> None:
        for arg, value in zip(self.signature.input_arg, self.arguments, strict=True):
            arg.type = value.dtype
        for result in self.signature.output_arg:
            result.type = self.results[result.name].dtype
            self.proto.ret[result.name] = self.results[result.name].name
        awaited = {name: node.name for name, node in self.awaited.items()}
        if [*awaited] != [*self.signature.control_output] or awaited != self.proto.control_ret:
            self.proto.control_ret.clear()
            self.proto.control_ret.update(awaited)
            self.signature.control_output[:] = awaited


class ProgramModel(dict[str, Function]):
    """Functions that call one another, by name."""

    def __init__(self, functions: Iterable[FunctionDef]) -> None:
        super().__init__()
        for function in functions:
            self.add(function)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.values()))

    def add(self, proto: FunctionDef, name: str = "") -> Function:
        """Add a function, perhaps under another name; it changes when it is written."""
        function = Function(self, proto, name)
        self[function.name] = function
        return function

    def copy_of(self, function: Function, name: str) -> Function:
        """Add a copy of a function that was not changed yet."""
        return self.add(protos.copy_of(function.proto), name)

    def callees(self, node: Node) -> list[Function]:
        """Return the functions of the program that a node calls."""
        return [self[name] for name in defs.called_functions(node, self) if name in self]


def _awaited(nodes: Iterable[Node]) -> str:
    names = ", ".join(f"^{node.name}" for node in nodes)
    return names and f" [{names}]"


def dtypes(values: Iterable[Value]) -> list[int]:
    """Return the numbers of the dtypes of values."""
    return [value.dtype for value in values]


def predecessors(nodes: Sequence[Node]) -> list[list[int]]:
    """Return the positions that each node waits for, but for back edges of TensorFlow 1's loops."""
    position = {node: i for i, node in enumerate(nodes)}
    found = []
    for node in nodes:
        sources = set(node.sources)
        if node.op in op_kinds.MERGES:
            sources = {source for source in sources if source.op not in op_kinds.LOOP_ENDS}
        found.append(sorted(position[source] for source in sources if source in position))
    return found

"""What follows from constants alone, computed before the program is compiled.

The sum of the rows of a `tf.RaggedTensor` looks for the rows with ranges and a `Where`. If the
splits are constants, or captured, XLA finds out the ranges through loops, branches and calls. To
the rest of hostcall they depend on data, and the `Where` makes a size that is only bounded.

So two kinds of values become constants, if they follow from constants, captured tensors, and
arguments of called functions, loops and branches that are constant in turn:

- the results of ops that make sizes of the elements of their operands,
- operands that XLA wants to know when it compiles, if arguments are among what they follow from.

TensorFlow's kernels compute them, as in graph mode. What raises an error stays as it is, and raises
it when the program runs.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._compiler.analyses import loops
from hostcall._compiler.sizes import sources
from hostcall._tf.graph import attributes, function_edits, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef

# Larger results stay what they are: they would be part of the program, and of what is compiled.
LARGEST_BYTES = 1 << 20
# Nothing larger than this is computed on the way to a result.
_LARGEST_STEP = 1 << 24
_MOST_NODES = 2000

# Constants by the numbers of a function's arguments.
_Known = Mapping[int, Any]


def folded(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary:
    """Return the library, or a copy in which what follows from constants alone is constant."""
    functions = defs.reachable(library, entry)
    captured = _captured(functions[entry])
    if not captured and not any(defs.nodes_of(f, sources.ALWAYS) for f in functions.values()):
        return library
    folder = _Folder(functions)
    folder.needs(entry, captured)
    changed = folder.fold(entry, captured)
    if changed is None:
        return library
    changed.signature.name = entry
    new = folder.new | {entry: changed}
    left = defs.reachable_in(functions | new, entry)
    # Functions that nothing calls any more would be taken for a part of the program.
    kept = [f for f in library.function if f.signature.name not in functions.keys() - left.keys()]
    copy: FunctionDefLibrary = protos.function_pb2.FunctionDefLibrary(
        function=[new.pop(f.signature.name, f) for f in kept]
    )
    copy.function.extend(new[name] for name in sorted(new) if name in left)
    return copy


def _captured(function: FunctionDef) -> dict[int, Any]:
    """Return the constants that a function captures: `_ops/emit/captures.py` has noted them."""
    return {
        number: marked.attr[attributes.CAPTURED].tensor
        for number, marked in function.arg_attr.items()
        if attributes.CAPTURED in marked.attr
    }


class _Use(NamedTuple):
    """A value that is wanted as a constant."""

    value: str  # its name as an input of nodes
    needs: frozenset[int]  # the arguments that it follows from
    node: str  # the node that takes it, or, if `operand` is None, the one that makes it
    operand: int | None


class _Sources:
    """What the values of a function follow from: constants, arguments, or something else."""

    def __init__(
        self, function: FunctionDef, functions: Functions, known: Collection[int] | None
    ) -> None:
        # All arguments but those `known` vary, unless it is None.
        self.nodes: dict[str, Any] = {node.name: node for node in function.node_def}
        self.types = defs.Types(function, functions)
        self.numbers = {
            argument.name: number
            for number, argument in enumerate(function.signature.input_arg)
            if argument.type not in defs.NO_ARRAYS and (known is None or number in known)
        }
        self._found: dict[str, frozenset[int] | None] = {
            name: frozenset({number}) for name, number in self.numbers.items()
        }

    def of(self, value: str) -> frozenset[int] | None:
        """Return the arguments that a value follows from, beside constants; None if from others."""
        pending = [defs.source(value)]
        while pending:
            name = pending[-1]
            if name not in self._found:
                node = self.nodes.get(name)
                if node is None or not _may_compute(node.op):
                    self._found[name] = None
                else:
                    names = [*map(defs.source, defs.data_inputs(node))]
                    if left := self._left(names):
                        pending += left
                        continue
                    self._found[name] = self._joined(node, names)
            pending.pop()
        return self._found[defs.source(value)]

    def _left(self, names: list[str]) -> list[str]:
        """Return an operand to look at first, unless another one shows that the op varies."""
        left = [name for name in names if name not in self._found]
        varies = any(name in self._found and self._found[name] is None for name in names)
        return [] if varies else left[:1]

    def _joined(self, node: NodeDef, names: list[str]) -> frozenset[int] | None:
        found = frozenset[int]()
        for name in names:
            arguments = self._found.get(name)
            if arguments is None:
                return None
            found |= arguments
        if node.op == "Const":
            return None if node.attr["dtype"].type in defs.NO_ARRAYS else found
        has_none = not names or any(self.types.handles(node, dtype) for dtype in defs.NO_ARRAYS)
        return None if has_none or not op_kinds.has_kernel(node) else found

    def behind(self, values: Iterable[str]) -> list[str]:
        """Return the arguments and nodes that values are computed from, the latter last first."""

        def operands(name: str) -> Iterable[str]:
            return map(
                defs.source, defs.data_inputs(self.nodes[name]) if name in self.nodes else ()
            )

        return [*reach(map(defs.source, values), operands)]


@functools.cache
def _may_compute(op: str) -> bool:
    """Return whether an op gives the same results for the same operands, whatever its settings."""
    definition = op_kinds.op_def_or_none(op)
    others = op_kinds.SCRIPT_OPS | op_kinds.FRAME_OPS
    if definition is None or definition.is_stateful or op in others:
        return False
    if any(attr.type in ("func", "list(func)") for attr in definition.attr):
        return False
    # Random numbers are drawn as the settings say, elsewhere.
    return "Random" not in op and not op.startswith(("Xla", "Hostcall", "_"))


class _Call(NamedTuple):
    """A call of functions by a node, and the values that become their arguments."""

    node: Any
    functions: list[str]
    values: dict[int, str]  # by the numbers of the arguments, where these are the same in each call


class _Folder:
    """A writer of functions in which what follows from constants is constant."""

    def __init__(self, functions: Functions) -> None:
        self.new: dict[str, Any] = {}  # the new functions but the entry, by name
        self._functions = functions
        self._sources: dict[str, _Sources] = {}
        self._uses: dict[str, list[_Use]] = {}
        self._calls: dict[str, list[_Call]] = {}
        self._needs: dict[str, frozenset[int]] = {}
        self._names: dict[tuple[str, bytes], str] = {}

    def fold(self, name: str, known: _Known) -> FunctionDef | None:
        """Return a copy of a function with some arguments `known`; None if nothing changes."""
        function, uses = self._functions[name], []
        wanted: dict[str, None] = {}
        for use in self._uses[name]:
            if use.needs <= known.keys():
                uses.append(use)
                results = use.operand is None and self._sources[name].types.results_of(use.node)
                wanted.update(dict.fromkeys(results or [use.value]))
        passed = [(call, self._passed(name, call, known)) for call in self._calls[name]]
        wanted.update(dict.fromkeys(value for _, each in passed for value in each.values()))
        constants = _values(self._sources[name], wanted, known) if wanted else {}
        renamed: dict[str, dict[str, str]] = {}
        for call, values in passed:
            given = {i: constants[value] for i, value in values.items() if value in constants}
            names = {called: self._name(called, given) for called in call.functions}
            if any(old != new for old, new in names.items()):
                renamed[call.node.name] = names
        edited = _Edited(function, self._sources[name], constants)
        edited.take(uses)
        if not (edited.is_changed or renamed):
            return None
        return edited.written(renamed, self._functions)

    def needs(self, name: str, known: Collection[int] | None = None) -> frozenset[int]:
        """Return the arguments of a function that would make something constant if they were."""
        # Others than those `known` are none, unless it is None.
        if name in self._needs:
            return self._needs[name]
        self._needs[name] = frozenset()  # XLA compiles no recursion
        function = self._functions[name]
        self._sources[name] = _Sources(function, self._functions, known)
        self._uses[name], self._calls[name] = [], []
        if not defs.has_frames(function):
            self._uses[name] = [*_uses(function, self._sources[name])]
            self._calls[name] = [*_calls(function, self._functions)]
        needs = [use.needs for use in self._uses[name]]
        for call in self._calls[name]:
            wanted = frozenset[int]().union(*map(self.needs, call.functions))
            values = (value for i, value in call.values.items() if i in wanted)
            needs += filter(None, map(self._sources[name].of, values))
        self._needs[name] = frozenset[int]().union(*needs)
        return self._needs[name]

    def _passed(self, name: str, call: _Call, known: _Known) -> dict[int, str]:
        """Return the values that a call passes, are constant, and make something so in turn."""
        found = {}
        wanted = frozenset[int]().union(*map(self.needs, call.functions))
        for i, value in call.values.items():
            if i in wanted:
                needs = self._sources[name].of(value)
                if needs is not None and needs <= known.keys():
                    found[i] = value
        return found

    def _name(self, name: str, given: _Known) -> str:
        """Return the name of the function that takes the place of one with these constants."""
        known = {i: value for i, value in given.items() if i in self.needs(name)}
        key = name, _digest(known)
        if key not in self._names:
            self._names[key] = name
            if (changed := self.fold(name, known)) is not None:
                new = name + function_names.digest_of_functions([changed])
                changed.signature.name = new
                self.new[new], self._names[key] = changed, new
        return self._names[key]


def _digest(known: _Known) -> bytes:
    digest = hashlib.blake2b()
    for number in sorted(known):
        digest.update(b"%d:" % number)
        digest.update(known[number].SerializeToString(deterministic=True))
    return digest.digest()


def _uses(function: FunctionDef, found: _Sources) -> Iterator[_Use]:
    """Yield the values that are wanted as constants, and follow from arguments and constants."""
    # Large functions have few kinds of ops.
    kinds: dict[str, list[Any]] = {}
    for node in function.node_def:
        kinds.setdefault(node.op, []).append(node)
    for op, nodes in kinds.items():
        for node in nodes:
            inputs = defs.data_inputs(node)
            if op in sources.ALWAYS:
                needs = [found.of(value) for value in inputs]
                if found.of(node.name) is not None:
                    yield _Use("", frozenset[int]().union(*filter(None, needs)), node.name, None)
                continue
            positions = sources.sizing_operands(node)
            if not positions and op not in sources.BY_OPERANDS:
                break
            for i in positions:
                # A value from constants of the function itself is known without this.
                if needed := found.of(inputs[i]):
                    yield _Use(inputs[i], needed, node.name, i)


def _calls(function: FunctionDef, functions: Functions) -> Iterator[_Call]:
    """Yield the calls of a function."""
    for node in defs.calls_in(function, functions):
        called = [name for name in defs.called_functions(node, functions) if name in functions]
        if not called:
            continue
        values = dict[int, str]()
        inputs = defs.data_inputs(node)
        if node.op in op_kinds.CALL_OPS:
            values = dict(enumerate(inputs))
        elif node.op in op_kinds.BRANCH_OPS:
            values = dict(enumerate(inputs[1:]))
        elif node.op in op_kinds.LOOP_OPS and (body := functions.get(node.attr["body"].func.name)):
            same = loops.invariants(body)
            values = {i: value for i, value in enumerate(inputs) if i in same}
        yield _Call(node, called, values)


def _values(found: _Sources, wanted: Iterable[str], known: _Known) -> dict[str, Any]:
    """Compute values of a function; those that cannot be, or are large, are left out."""
    wanted = list(wanted)
    try:
        return _computed(found, wanted, known)
    except (tf.errors.OpError, ValueError, TypeError):
        if len(wanted) == 1:
            return {}
    return dict(itertools.chain.from_iterable(_values(found, [v], known).items() for v in wanted))


def _computed(found: _Sources, wanted: list[str], known: _Known) -> dict[str, Any]:
    """Compute values of a function by a graph of their own; raise an error if one has one."""
    direct = {v: known[found.numbers[v]] for v in wanted if v in found.numbers}
    rest = [value for value in wanted if value not in direct]
    names = found.behind(rest)
    if not rest or len(names) > _MOST_NODES:
        return direct
    graph_def = tf.compat.v1.GraphDef(versions={"producer": tf.version.GRAPH_DEF_VERSION})
    for name in names:
        graph_def.node.append(
            _plain(found.nodes[name], found)
            if name in found.nodes
            else function_edits.constant(name, known[found.numbers[name]])
        )
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        if any(_is_large(t, _LARGEST_STEP) for op in graph.get_operations() for t in op.outputs):
            raise ValueError("it is too large to be computed here")
        tensors = [graph.get_tensor_by_name(_input(value, found)) for value in rest]
    # The thread that asks may hold what a pool's threads wait for.
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0}, inter_op_parallelism_threads=-1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        arrays = session.run(tensors)
    return direct | {
        value: tf.make_tensor_proto(array, tensor.dtype)
        for value, tensor, array in zip(rest, tensors, arrays, strict=True)
        if array.nbytes <= LARGEST_BYTES
    }


def _is_large(tensor: tf.Tensor, limit: int) -> bool:
    count = tensor.shape.num_elements()
    return count is not None and count * tensor.dtype.size > limit


def _plain(node: NodeDef, found: _Sources) -> NodeDef:
    """Return a node as one of a graph, without marks, device and control inputs."""
    plain: NodeDef = protos.node_def_pb2.NodeDef(name=node.name, op=node.op)
    plain.input.extend(_input(value, found) for value in defs.data_inputs(node))
    for name, value in node.attr.items():
        if not name.startswith("_"):
            plain.attr[name].CopyFrom(value)
    return plain


def _input(value: str, found: _Sources) -> str:
    """Return the name that an input of a function's node has in a graph."""
    name, _, result = value.partition(":")
    return f"{name}:{found.types.position(name, result) if result else 0}"


def _renamed(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)


class _Edited:
    """A copy of a function in which constants take the place of some values."""

    def __init__(self, function: FunctionDef, found: _Sources, constants: dict[str, Any]) -> None:
        self._function = function
        self._found = found
        self._constants = constants
        self._new: dict[str, Any] = {}  # the Const nodes, by the values that they replace
        self._everywhere: dict[str, str] = {}  # replaced values, wherever they are used
        self._operands: dict[tuple[str, int], str] = {}  # those of single operands
        self._names = {*found.nodes, *(arg.name for arg in function.signature.input_arg)}

    @property
    def is_changed(self) -> bool:
        """Whether a constant takes the place of a value."""
        return bool(self._new)

    def take(self, uses: Iterable[_Use]) -> None:
        """Let constants take the place of values, where they are known."""
        for use in uses:
            if use.operand is not None:
                if use.value in self._constants:
                    self._operands[use.node, use.operand] = self._replacement(use.value)
                continue
            results = [*self._found.types.results_of(use.node)]
            if self._constants.keys() >= {*results}:
                self._everywhere |= {value: self._replacement(value) for value in results}
                # Nodes that wait for the op wait for what the op waited for.
                self._everywhere[f"^{use.node}"] = f"^{self._new[results[0]].name}"

    def _replacement(self, value: str) -> str:
        if value not in self._new:
            name = base = f"{defs.source(value)}/constant"
            numbers = itertools.count(1)
            while name in self._names:
                name = f"{base}_{next(numbers)}"
            self._names.add(name)
            names = self._found.behind([value])
            device = self._found.nodes[names[0]].device if names[0] in self._found.nodes else ""
            controls = self._controls(names)
            tensor = self._constants[value]
            self._new[value] = function_edits.constant(name, tensor, device, controls)
        return f"{self._new[value].name}:output:0"

    def _controls(self, names: list[str]) -> list[str]:
        """Return the control inputs from outside of some nodes."""
        nodes = [self._found.nodes[name] for name in names if name in self._found.nodes]
        waited = dict.fromkeys(v for node in nodes for v in node.input if v.startswith("^"))
        return sorted(value for value in waited if value[1:] not in names)

    def written(
        self, renamed: Mapping[str, Mapping[str, str]], functions: Functions
    ) -> FunctionDef:
        """Return the function, whose calls are `renamed`, without what nothing needs any more."""
        new = protos.copy_of(self._function)
        added = [*self._new.values()]
        for node in itertools.chain(added, new.node_def):
            for i, value in enumerate(node.input):
                taken = self._operands.get((node.name, i), value)
                node.input[i] = self._everywhere.get(taken, taken)
            if node.name in renamed:
                names = renamed[node.name]
                defs.redirect(node, functions, functools.partial(_renamed, names))
        function_edits.edit_results(new, lambda value: self._everywhere.get(value, value))
        unused = self._unused(new, added)
        kept = [node for node in new.node_def if node.name not in unused]
        function_edits.replace_nodes(new, [*added, *kept])
        return new

    def _unused(self, function: FunctionDef, added: list[Any]) -> set[str]:
        """Return the nodes that only what is constant now needed."""
        uses: dict[str, int] = {}
        nodes = {node.name: node for node in itertools.chain(function.node_def, added)}
        values = [value for node in nodes.values() for value in node.input]
        for value in (*values, *function.ret.values(), *function.control_ret.values()):
            uses[defs.source(value)] = uses.get(defs.source(value), 0) + 1
        unused: set[str] = set()
        pending = self._found.behind(self._new)
        while pending:
            name = pending.pop()
            if name in nodes and name not in unused and not uses.get(name):
                unused.add(name)
                for value in nodes[name].input:
                    uses[defs.source(value)] -= 1
                    # An op outside, such as an assertion that it waited for, is not its own.
                    if not value.startswith("^"):
                        pending.append(defs.source(value))
        return unused

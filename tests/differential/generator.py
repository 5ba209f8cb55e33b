"""Draws random programs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.differential.catalogue import OPS
from tests.differential.control import FORMS
from tests.differential.program import Block, Program, Statement, Type
from tests.differential.raising_ops import RAISING
from tests.differential.script_ops import BEHAVIOURS, is_stock
from tests.differential.sources import SOURCES

INPUTS = [Type("f", ("n",)), Type("i", ())]
DEEPEST = 2

# Neither Python nor XLA differentiates these correctly.
_NOT_DIFFERENTIATED = {"for_loop", "growing_loop", "unique", "scatter"}
# TensorFlow has no gradient of them, or one that is not exact.
_NOT_DIFFERENTIATED |= {"dataset_total", "determinant", "nth_element", "serialized", "shuffled"}
# Sessions of TensorFlow 1 have their own ways with tables.
_NOT_IN_SESSIONS = {"table_insert", "table_find", "table_size"}

_SCRIPT_OPS = {*BEHAVIOURS, "evens_of_any", "note", "entries", "python_variable", "fail_above"}


def is_whole(name: str, param: Any) -> bool:
    """Return whether XLA knows the shapes of the function's results, with this parameter."""
    if name in BEHAVIOURS:
        texts = "s" in BEHAVIOURS[name].patterns.replace(",", " ").split()
        return param[1] in ("set_shape", "rule", "bounded") and not texts
    if name in ("entries", "python_variable", "fail_above"):
        return param if isinstance(param, bool) else param[-1]
    return True


def needs_hostcall(name: str, param: Any) -> bool:
    """Return whether stock TensorFlow lacks the way in which the function is called."""
    return name in BEHAVIOURS and not is_stock(*param[:2])


# XLA has no kernel for these, or nothing tells it the sizes of their results.
_ON_THE_HOST = {"evens_of_any"} | {name for name, op in OPS.items() if op.on_host}
_ON_THE_HOST |= {
    name for name in BEHAVIOURS if not any(is_whole(name, p) for p in OPS[name].params)
}


@dataclasses.dataclass
class Drawing:
    """The state while one program is drawn.

    Attributes:
      whole: whether it leaves out ops that XLA cannot compile, wherever that is known in advance.
      stock: whether it leaves out calls that only hostcall has.
      callbacks: whether it has script ops.
      dynamic: whether values have sizes that only the run knows.
      raising: whether ops raise for values.
    """

    draw: Any
    gradient: bool
    whole: bool = False
    stock: bool = False
    callbacks: bool = True
    dynamic: bool = True
    raising: bool = False
    sizes: itertools.count[int] = dataclasses.field(default_factory=itertools.count)

    def one_of(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def block(
        self, types: list[Type], most: int, depth: int, wanted: Callable[[Type], bool] | None
    ) -> tuple[Block, list[Type]]:
        """A block that can use values of those types, and the types of its results."""
        types = list(types)
        statements = []
        for _ in range(self.draw(st.integers(1, most))):
            statement, results = self.statement(types, depth)
            statements.append(statement)
            types.extend(results)
        candidates = [i for i, type_ in enumerate(types)
                      if wanted is None or wanted(type_)]  # fmt: skip
        used = {i for statement in statements for i in statement.args}
        unused = tuple(i for i in candidates if i not in used)
        returned: tuple[int, ...]
        if wanted is not None:
            returned = (self.one_of(reversed(candidates)),)
        elif self.dynamic and unused and self.one_of([False, True, True]):
            returned = unused  # so that nothing is left out of the graph
        else:
            returned = tuple(self.draw(st.lists(
                st.sampled_from(candidates[::-1]), min_size=1, max_size=4, unique=True,
            )))  # fmt: skip
        return Block(tuple(statements), returned), [types[i] for i in returned]

    def statement(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        # Calls in the conditions of loops, which are compiled in their own way, are rare otherwise.
        kinds = ["form", "script op"] if self.whole else ["op", "script op"]
        kinds = ["op", "script op", *kinds, "form"] if self.callbacks else ["op", "op", "form"]
        kind = self.one_of([*kinds, "source", "source"] if self.dynamic else kinds)
        kind = self.one_of([kind, "raising"]) if self.raising else kind
        if kind == "form" and depth < DEEPEST:
            return self.form(types, depth)
        among = {n for n in OPS if (n in _SCRIPT_OPS) == (kind == "script op")}
        among -= set() if self.dynamic else {*SOURCES}
        among &= {*SOURCES} if kind == "source" else among
        among = {*RAISING} if kind == "raising" else among - {*RAISING}
        among -= _NOT_DIFFERENTIATED if self.gradient else set()
        among -= _ON_THE_HOST if self.whole else set()
        among -= _NOT_IN_SESSIONS if self.stock else set()
        options = {name: OPS[name].choices(types) for name in sorted(among)}
        options = self._among_dynamic(options, types)
        name = self.one_of(name for name, choices in options.items() if choices)
        op = OPS[name]
        args = self.one_of(reversed(options[name]))
        params = [
            param
            for param in op.params
            if (not self.whole or is_whole(name, param))
            and not (self.stock and needs_hostcall(name, param))
        ]
        param = self.one_of(params)
        results = op.results([types[i] for i in args], param, self.sizes)
        return Statement(name, args, param), results

    def _among_dynamic(
        self, options: dict[str, list[tuple[int, ...]]], types: list[Type]
    ) -> dict[str, list[tuple[int, ...]]]:
        """Often the ops and arguments of sizes that only the run knows alone."""
        if not self.dynamic or self.one_of([False, True]):
            return options
        found = {
            name: [args for args in choices if any(types[i].is_dynamic for i in args)]
            for name, choices in options.items()
        }
        return found if any(found.values()) else options

    def form(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        left_out = set(_NOT_DIFFERENTIATED) if self.gradient else set()
        left_out |= set() if self.dynamic else {"unequal_branch", "unequal_switch"}
        # XLA compiles some of them.
        left_out |= {"growing_loop"} if self.whole and self.callbacks else set()
        forms = [name for name in FORMS if name not in left_out]
        return getattr(self, f"_{self.one_of(forms)}")(types, depth)

    def _value(self, types: list[Type], *kinds: str) -> int:
        """The position of a value that goes into loops and functions."""
        return self.one_of([
            i for i, t in reversed(list(enumerate(types)))
            if not kinds or t.kind + " a" * len(t.dims) in kinds
        ])  # fmt: skip

    def _body(self, types: list[Type], depth: int, wanted: Any) -> tuple[Block, list[Type]]:
        return self.block(types, 3, depth + 1, wanted)

    def _branch(
        self, types: list[Type], depth: int, unequal: str = ""
    ) -> tuple[Statement, list[Type]]:
        conditions = [i for i, type_ in enumerate(types) if type_ == Type("b", ())]
        if not conditions:
            return self._switch(types, depth, unequal)
        return self._branches(f"{unequal}branch", self.one_of(conditions), 2, types, depth)

    def _switch(
        self, types: list[Type], depth: int, unequal: str = ""
    ) -> tuple[Statement, list[Type]]:
        return self._branches(f"{unequal}switch", self._value(types, "i"), 3, types, depth)

    # Their results are vectors of different sizes.
    _unequal_branch = functools.partialmethod(_branch, unequal="unequal_")
    _unequal_switch = functools.partialmethod(_switch, unequal="unequal_")

    def _branches(
        self, name: str, index: int, count: int, types: list[Type], depth: int
    ) -> tuple[Statement, list[Type]]:
        unequal = name.startswith("unequal")
        result = None if unequal else types[self._value(types)]
        wanted = _is_vector if result is None else result.__eq__
        bodies = [self._body(types, depth, wanted)[0] for _ in range(count)]
        result = result or Type("f", (f"x{next(self.sizes)}",))
        return Statement(name, (index,), None, tuple(bodies)), [result]

    def _while_loop(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        # The second one tells whether XLA knows the number of iterations.
        param = self.gradient or self.one_of([True, False]), self.one_of([False, True])
        conditions = 0 if self.gradient else self.one_of([0, 1])
        return self._loop("while_loop", param, types, depth, conditions)

    def _for_loop(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        return self._loop("for_loop", None, types, depth)

    def _loop(
        self, name: str, param: Any, types: list[Type], depth: int, conditions: int = 0
    ) -> tuple[Statement, list[Type]]:
        start = self._value(types)
        count = self._value(types, "i")
        result = types[start]
        inside = [*types, result, Type("i", ())]
        body, _ = self._body(inside, depth, result.__eq__)
        more = [self._body(inside, depth, lambda _: True)[0] for _ in range(conditions)]
        return Statement(name, (start, count), param, (body, *more)), [result]

    def _array(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        types = [*types, Type("i", ())]
        scalar = Type("f", ())
        if scalar not in types:
            results = OPS["total"].results([types[0]], None, self.sizes)
            return Statement("total", (0,)), results
        body, _ = self._body(types, depth, scalar.__eq__)
        return Statement("array", (), None, (body,)), [Type("f", ("3",))]

    def _growing_loop(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        start = self._value(types, "f a")
        variable = Type("f", (f"h{next(self.sizes)}",))
        inside = [*types, variable, Type("i", ())]
        body, _ = self._body(inside, depth, _is_vector)
        return Statement("growing_loop", (start,), None, (body,)), [variable]

    def _function(self, types: list[Type], depth: int) -> tuple[Statement, list[Type]]:
        args = tuple(self._value(types) for _ in range(self.draw(st.integers(0, 2))))
        inside = [*types, *[types[i] for i in args]]
        body, results = self._body(inside, depth, lambda _: True)
        param = (self.one_of([False, True]), self.one_of([1, 2]))
        return Statement("function", args, param, (body,)), results


def _is_vector(type_: Type) -> bool:
    return type_.kind == "f" and len(type_.dims) == 1


@st.composite
def programs(
    draw: Any,
    whole: bool = False,
    stock: bool = False,
    callbacks: bool = True,
    dynamic: bool = True,
    raising: bool = False,
) -> Program:
    """Random programs, each with two inputs.

    `whole` leaves out what XLA cannot compile, and `stock` what only hostcall has. Without
    `callbacks` there are no script ops, and without `dynamic` no sizes that only the run knows.
    Those of ops that are `raising` may raise in graph mode.
    """
    gradient = draw(st.sampled_from([None, None, None, None, "inside", "outside"]))
    exported = whole and callbacks
    # XLA gets much wrong for sizes that only the run knows, so that few such programs are exported.
    some = draw(st.sampled_from([False, False, True] if exported else [True, False]))
    dynamic = dynamic and (some or not callbacks)
    drawing = Drawing(draw, gradient is not None, whole, stock, callbacks, dynamic, raising)
    body, _ = drawing.block(INPUTS, 7, 0, None)
    vectors = st.lists(st.integers(-4, 4), max_size=4).map(tuple)
    inputs = st.tuples(vectors, st.integers(-1, 4))
    return Program(
        body,
        (draw(inputs), draw(inputs)),
        fixed_shapes=draw(st.sampled_from([True, True, False] if exported else [True, False])),
        nested=draw(st.booleans()),
        gradient=gradient,
    )

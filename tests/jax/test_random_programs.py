"""Random programs: values, calls and their order are those of the same program in Python.

Every value is an array of three whole numbers from 0 to 7, kept there by the remainder, so that all
ways of computing it agree to the last bit.
"""

import functools
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.jax.helpers import eagerly

SPEC = jax.ShapeDtypeStruct((3,), np.float32)

# Appends a value to the list of values; the first argument defines the ops.
Statement = Callable[[Any, list[Any]], Any]


def mod8(x: Any) -> Any:
    return x % np.float32(8)


def arithmetic(x: Any, y: Any, scale: int, number: int) -> Any:
    return mod8(x + np.float32(scale) * y + np.float32(number))


class Function:
    """A Python function that notes its calls in `log` if it is called for its effect."""

    def __init__(self, kind: str, number: int, scale: int, log: list[Any]) -> None:
        self.kind, self.number, self.scale, self._log = kind, number, scale, log
        self.compute = functools.partial(arithmetic, scale=scale, number=number)
        stateful = kind == "stateful object"
        self.callback = hostcall.callback(
            self.__call__, result=SPEC, stateful=stateful, grad=lambda _, __, u: (u, scale * u)
        )

    def __call__(self, x: Any, y: Any) -> Any:
        if self.kind in ("unordered", "ordered", "stateful object"):
            self._log.append((self.kind != "unordered", self.number, x.tolist(), y.tolist()))
        return self.compute(x, y)


class InJax:
    """The ops in JAX; without calls only the values are right."""

    np: Any = jnp
    stop, jit, remat = map(staticmethod, (lax.stop_gradient, jax.jit, jax.checkpoint))
    switch, loop = map(staticmethod, (lax.switch, lax.while_loop))

    def __init__(self, calls: bool = True) -> None:
        self._calls = calls

    def call(self, function: Function, x: Any, y: Any) -> Any:
        if "object" not in function.kind:  # those have no derivative
            x, y = self.stop(x), self.stop(y)
        if not self._calls:
            return function.compute(x, y)
        if "object" in function.kind:
            return function.callback(x, y)
        ordered, pure = (function.kind == kind for kind in ("ordered", "pure"))
        method = None if ordered else "broadcast_all" if pure else "sequential"
        options: dict[str, Any] = {"ordered": ordered, "pure": pure, "vmap_method": method}
        return hostcall.jax.call(function, SPEC, x, y, **options)

    def repeat(self, iterations: int, body: Any, x: Any) -> Any:
        return lax.fori_loop(0, iterations, lambda _, x: body(x), x)

    def scan(self, body: Any, rows: Any, x: Any) -> Any:
        return lax.scan(lambda x, row: (body(x, row), None), x, rows)[0]

    def each(self, function: Any, rows: Any) -> Any:
        return jax.vmap(function)(rows)

    def slope(self, function: Callable[..., Any], values: list[Any]) -> Any:
        return jax.grad(lambda x: function(self, values, x).sum())(values[-1])


class InPython:
    """The ops without JAX: what is called, when and how often, stands here as one would read it."""

    np: Any = np
    stop = jit = remat = staticmethod(lambda function_or_value: function_or_value)
    scan = staticmethod(functools.reduce)

    def call(self, function: Function, x: Any, y: Any) -> Any:
        return function(x, y)

    def switch(self, index: Any, branches: Any, x: Any) -> Any:
        return branches[min(index, len(branches) - 1)](x)

    def repeat(self, iterations: int, body: Any, x: Any) -> Any:
        return functools.reduce(lambda x, _: body(x), range(iterations), x)

    def loop(self, condition: Any, body: Any, x: Any) -> Any:
        while condition(x):
            x = body(x)
        return x

    def each(self, function: Any, rows: Iterable[Any]) -> Any:
        return np.stack([function(row) for row in rows])

    def slope(self, function: Callable[..., Any], values: list[Any]) -> Any:
        function(self, values, values[-1])
        return np.asarray(InJax(calls=False).slope(function, [jnp.asarray(v) for v in values]))


class Place(NamedTuple):
    """A place of statements, without those that JAX refuses there."""

    effects: bool = True  # whether calls may have any
    is_batch: bool = False  # in vmap, where ordered calls have no order, and conditions differ
    is_derived: bool = False  # in a gradient, which while_loop has not

    @property
    def conditional(self) -> "Place":
        return self._replace(effects=self.effects and not self.is_batch)


class Program:
    """A program of about `size` statements. `log` has its calls: ordered or not, and of what."""

    def __init__(self, seed: int, size: int) -> None:
        self._random, self._left = Random(seed), size
        self.log: list[Any] = []
        self._numbers = 0
        self._body = self._block(Place(), 5)

    def run(self, ops: Any, x: Any) -> Any:
        return self._body(ops, [x], x)

    def calls(self) -> list[Any]:
        """Those since the last time: the unordered ones, sorted, and the others as they came."""
        calls, self.log[:] = [*self.log], []
        return sorted(calls, key=lambda call: call[:1] if call[0] else call)

    def _block(self, place: Place, most: int = 3) -> Callable[..., Any]:
        """Statements as a function of values, one more of them, and that one's likes."""
        statements = [self._statement(place) for _ in range(self._random.randint(1, most))]

        def block(ops: Any, values: list[Any], *more: Any) -> Any:
            values = [*values, *more]
            for statement in statements:
                values.append(statement(ops, values))
            return values[-1]

        return block

    def _statement(self, place: Place) -> Statement:
        self._left -= 1
        kinds = [self._compute, self._call, self._call]
        if self._left > 0:
            kinds += [self._switch, self._repeat, self._scan, self._each]
            kinds += [self._jit, self._remat, self._slope]
            kinds += [] if place.is_derived else [self._loop]
        return self._random.choice(kinds)(place)

    def _value(self) -> Callable[[list[Any]], Any]:
        """Chooses one of the values, the last ones more often."""
        back = self._random.choice([1, 1, 2, 3, 5])
        return lambda values: values[-min(back, len(values))]

    def _compute(self, _: Place) -> Statement:
        one, other, number = self._value(), self._value(), self._random.randint(0, 7)
        ops_of: list[Statement] = [
            lambda ops, v: arithmetic(one(v), other(v), -1, number),
            lambda ops, v: ops.np.where(one(v) > 3, one(v), other(v)),
            lambda ops, v: ops.np.flip(one(v)),
            lambda ops, v: mod8(ops.np.cumsum(one(v))),
        ]
        return self._random.choice(ops_of)

    def _call(self, place: Place) -> Statement:
        kinds = ["pure", "object"] + ["unordered"] * place.effects
        if place.effects and not place.is_batch:
            kinds += ["ordered", "stateful object"]
        self._numbers += 1
        kind, scale = self._random.choice(kinds), self._random.choice([-1, 1, 2])
        function = Function(kind, self._numbers, scale, self.log)
        one, other = self._value(), self._value()
        return lambda ops, v: ops.call(function, one(v), other(v))

    def _switch(self, place: Place) -> Statement:
        blocks = [self._block(place.conditional) for _ in range(self._random.randint(1, 3))]
        index, x = self._value(), self._value()
        return lambda ops, v: ops.switch(
            index(v)[0].astype(int), [functools.partial(block, ops, v) for block in blocks], x(v)
        )

    def _repeat(self, place: Place) -> Statement:
        body, x, iterations = self._block(place), self._value(), self._random.randint(0, 3)
        return lambda ops, v: ops.repeat(iterations, functools.partial(body, ops, v), x(v))

    def _loop(self, place: Place) -> Statement:
        condition, body = self._block(place.conditional, 1), self._block(place.conditional)
        start = self._value()
        return lambda ops, v: ops.loop(
            lambda carried: (condition(ops, v, carried[1])[0] != 3) & (carried[0] < 2),
            lambda carried: (carried[0] + 1, body(ops, v, carried[1])),
            (0, start(v)),
        )[1]

    def _scan(self, place: Place) -> Statement:
        body, x, row = self._block(place), self._value(), self._value()
        return lambda ops, v: ops.scan(functools.partial(body, ops, v), _rows(row(v)), x(v))

    def _each(self, place: Place) -> Statement:
        body, row = self._block(place._replace(is_batch=True)), self._value()

        # A call that does not depend on the row would be made once for all rows.
        def one(ops: Any, v: list[Any], row: Any) -> Any:
            return body(ops, [mod8(value + row) for value in v], row)

        return lambda ops, v: mod8(ops.each(functools.partial(one, ops, v), _rows(row(v))).sum(0))

    def _jit(self, place: Place) -> Statement:
        body, one, other = self._block(place), self._value(), self._value()

        def twice(function: Any, v: list[Any]) -> Any:
            return mod8(function(one(v)) + function(other(v)))

        return lambda ops, v: twice(ops.jit(functools.partial(body, ops, v)), v)

    def _remat(self, place: Place) -> Statement:
        body, x = self._block(place._replace(effects=False)), self._value()
        return lambda ops, v: ops.remat(functools.partial(body, ops, v))(x(v))

    def _slope(self, place: Place) -> Statement:
        body = self._block(place._replace(is_derived=True))
        return lambda ops, v: mod8(ops.slope(body, [ops.stop(value) for value in v]))


def _rows(x: Any) -> Any:
    return mod8(x[:, None] + x)


# They have each kind of call right in each kind of statement, where JAX allows it.
SEEDS = [7, 39, 101, 226, 638, 938]
INPUTS = [np.array(x, np.float32) for x in ([1, 5, 2], [7, 0, 4])]


def check(seed: int, size: int, mode: Any) -> None:
    program = Program(seed, size)
    compiled = mode(lambda x: program.run(InJax(), x))
    for x in INPUTS:
        expected, calls = program.run(InPython(), x), program.calls()
        result = np.asarray(compiled(jnp.asarray(x)))
        jax.effects_barrier()
        assert program.calls() == calls
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", [jax.jit, eagerly])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_does_what_it_does_in_python(seed: int, mode: Any) -> None:
    check(seed, 10, mode)

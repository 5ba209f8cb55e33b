"""hostcall._compiler.semantics.failures: which ops are checked, and how the errors are carried."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - its ops are what is written
from hostcall._compiler.semantics import failures
from hostcall._tf import concrete_functions
from hostcall._tf.graph import function_defs, op_kinds
from tests.support.e2e.failing_ops import USES, Use

X, I = tf.constant([1.0, 2.0, 3.0]), tf.constant(1)  # noqa: E741 - an index


class Raising:
    """The outcome of `failures.add` for a function."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        concrete = tf.function(function).get_concrete_function(*(args or (X, I)))
        library = concrete_functions.library_of(concrete, concrete.graph.as_graph_def())
        entry = concrete.function_def.signature.name
        self.found = failures.find_checks(library, entry)
        self.before = library.SerializeToString(deterministic=True)
        new = failures.add(library, entry)
        self.is_changed = new is not library
        self.after = new.SerializeToString(deterministic=True)
        assert library.SerializeToString(deterministic=True) == self.before
        self.functions = function_defs.by_name(new)
        self.entry = self.functions[entry]

    def checked(self) -> list[str]:
        return [found.node.op for several in self.found.values() for found in several]

    def raises(self) -> list[Any]:
        """Return the nodes of the program that raise, each with its errors."""
        return [node for node in self.entry.node_def if node.op == op_kinds.RAISE]

    def errors(self) -> list[list[str]]:
        """Return the messages of each node that raises."""
        return [[e.decode() for e in node.attr["errors"].list.s] for node in self.raises()]


# tests/e2e/test_graph_errors_routes.py sees the others raise.
ON_HOST = {name: use for name, use in USES.items() if not use.is_compiled}


@pytest.mark.parametrize("use", ON_HOST.values(), ids=ON_HOST)
def test_it_finds_the_checks_of_ops_that_are_on_the_host(use: Use) -> None:
    arguments = [tf.TensorSpec(value.shape, value.dtype) for value in use.good]
    assert use.op in Raising(use.run, *arguments).checked()


def _resized(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return tf.TensorArray(tf.float32, 1, dynamic_size=True).write(i, x).read(0)


def _counted(x: tf.Tensor, first: Any, end: Any, length: Any, behind: int = 0) -> tf.Tensor:
    """Write elements of a list at the places from `first` to `end`, each `behind` the counter."""
    array = tf.TensorArray(tf.float32, length, element_shape=[])

    def body(k: tf.Tensor, array: Any) -> Any:
        return k + 1, array.write(k + behind if behind else k, x[0])

    return tf.while_loop(lambda k, _: k < end, body, [first, array])[1].stack()


NEVER: dict[str, Callable[[tf.Tensor, tf.Tensor], Any]] = {
    "a division of floats": lambda x, i: x / tf.cast(i, tf.float32) + x // 2.0,
    "a constant divisor": lambda x, i: i // 2 + i % tf.constant([3, -1]),
    "a power of floats": lambda x, i: x ** tf.cast(i, tf.float32),
    "a constant exponent": lambda x, i: i**3,
    "no indices": lambda x, i: tf.gather(x, tf.zeros([0], tf.int32)) * tf.cast(i, tf.float32),
    "constant places": lambda x, i: x[0] + x[-1],
    "a range": lambda x, i: x[i : i + 2],
    "indices that may be bad": lambda x, i: tf.raw_ops.GatherNd(
        params=x, indices=[[i]], bad_indices_policy="IGNORE"
    ),
    "what nothing uses": lambda x, i: (tf.gather(x, i), x)[1],
    "elements of map_fn": lambda x, i: (tf.map_fn(lambda v: v * 2.0, x), i),
    "elements that a loop counts": lambda x, i: (_counted(x, 1, 4, 4), i),
    "as many elements as a loop counts": lambda x, i: _counted(x, 0, i, i),
    "nothing that raises": lambda x, i: tf.reduce_sum(x) * 2.0,
}


@pytest.mark.parametrize("program", NEVER.values(), ids=NEVER)
def test_what_never_raises_stays_as_it_is(program: Any) -> None:
    raising = Raising(program)
    assert not raising.checked()
    assert not raising.is_changed


@pytest.mark.parametrize(
    "program",
    [
        lambda x, i: (_counted(x, -1, 3, 3), i),
        lambda x, i: (_counted(x, 0, 4, 3), i),
        lambda x, i: (_counted(x, 0, 3, 3, behind=1), i),
        lambda x, i: _counted(x, i, 3, 3),
        lambda x, i: _counted(x, 0, i, 3),
        lambda x, i: _counted(x, 0, 3, i),
    ],
    ids=["from -1", "too many", "behind", "any first", "any end", "any length"],
)
def test_elements_that_may_not_be_in_their_list_are_checked(program: Any) -> None:
    assert Raising(program).checked() == ["TensorListSetItem"]


def test_a_loop_that_raises_inside_carries_no_failure() -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        for k in tf.range(i):
            x += tf.numpy_function(lambda v: v, [tf.gather(x, k)], tf.TensorSpec([]))
        return x

    raising = Raising(program)
    (loop,) = (node for node in raising.entry.node_def if node.op in op_kinds.LOOP_OPS)
    assert not raising.raises()
    before = next(name for name in raising.functions if "while_body" in name)
    taken = raising.functions[before].signature.input_arg
    assert len(loop.attr["T"].list.type) == len(taken)


def test_a_list_that_grows_is_checked_where_it_is_read_alone() -> None:
    assert Raising(_resized).checked() == ["TensorListGetItem"]


def several(x: tf.Tensor, i: tf.Tensor) -> Any:
    total = tf.gather(x, i)
    for k in tf.range(i):
        if k > 1:
            total += tf.gather(x, k)
    while total < 5.0:
        total += tf.gather(x, tf.cast(total, tf.int32))
    return total, i // i


def test_the_names_are_the_same_for_the_same_input() -> None:
    function = tf.function(several)
    concrete = function.get_concrete_function(X, I)
    library = concrete_functions.library_of(concrete, concrete.graph.as_graph_def())
    entry = concrete.function_def.signature.name
    texts = {failures.add(library, entry).SerializeToString(deterministic=True) for _ in range(3)}
    assert len(texts) == 1


def test_one_op_raises_the_errors_of_a_program_without_calls() -> None:
    (messages,) = Raising(several).errors()
    numbers, codes, texts = zip(*(message.split(":", 2) for message in messages), strict=True)
    assert numbers == ("1", "4", "2", "3")  # those that no loop has the number of come first
    assert {*codes} == {"3"}
    for name, text in zip(
        ("GatherV2", "floordiv_1", "while/cond/GatherV2", "while_1/GatherV2"), texts, strict=True
    ):
        assert f"op '{name}'" in text
        assert f"{{{{node {name}}}}}" in text


def test_a_call_raises_what_came_before_it() -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        y = tf.gather(x, i)
        z = tf.numpy_function(lambda v: v, [x], tf.TensorSpec([3], tf.float32))
        return y + tf.gather(z, i) + tf.numpy_function(lambda v: v, [y], tf.TensorSpec([]))

    raising = Raising(program)
    calls = [node for node in raising.entry.node_def if node.op in op_kinds.SCRIPT_OPS]
    assert [len(errors) for errors in raising.errors()] == [1, 1]
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("program", "ends"),
    [
        (lambda k, x, i: (k < 5, tf.gather(x, k)), False),
        (lambda k, x, i: (tf.reduce_sum(x) < 5.0, tf.gather(x, k)), True),
        (lambda k, x, i: (k < tf.cast(x[0], tf.int32), tf.gather(x, k)), True),
    ],
    ids=["counted", "by a sum", "up to a number that changes"],
)
def test_a_loop_that_need_not_end_ends_at_a_failure(program: Any, ends: bool) -> None:
    def run(x: tf.Tensor, i: tf.Tensor) -> Any:
        return tf.while_loop(
            lambda k, x: program(k, x, i)[0],
            lambda k, x: (k + 1, x + program(k, x, i)[1]),
            [0, x],
        )

    raising = Raising(run)
    (loop,) = (node for node in raising.entry.node_def if node.op in op_kinds.LOOP_OPS)
    condition = raising.functions[loop.attr["cond"].func.name]
    asks = any(node.op == "LogicalAnd" for node in condition.node_def)
    assert asks is ends

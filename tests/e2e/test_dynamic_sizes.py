"""Sizes that only the run knows, made by TensorFlow's own ops: what is compiled, what is not.

That the values are right is tested in tests/dynamic, for all kinds of sources and uses.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_alike,
    assert_says,
    compilations,
    failure,
    gradient_of,
    jitted,
    plain,
    value_and_gradient,
)

X = tf.constant([0.1, -0.1, 0.6, 0.1, -0.5, 0.4])
MASKS = [X < 0, X > 2.0, X < 2.0, X > 0.5]

one_program = pytest.mark.custom_call("it is about what can be in one program")


def _print(x: tf.Tensor) -> None:
    tf.print("x", x, output_stream="file:///dev/null")


def _sorted(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(np.sort, [x], tf.TensorSpec([6], tf.float32))


def _on_host(function: Any, *args: Any) -> set[str]:
    """The kinds of the ops on the host, without those that print."""
    kinds = {op.op for op in hostcall.explain(function, *args).host_ops}
    return kinds - {"PrintV2", "StringFormat", "NoOp", "Identity", "Const", "Reshape", "Shape"}


def is_right(*arguments: tuple[Any, ...], any_size: bool = False) -> Any:
    """Make a test of a program: compiled, it is right for each of these arguments.

    It may be traced once, for vectors of any size.
    """

    def test_of(program: Callable[..., Any]) -> Callable[[], None]:
        def test() -> None:
            signature = [tf.TensorSpec([None] * arg.shape.rank, arg.dtype) for arg in arguments[0]]
            how = {"input_signature": signature} if any_size else {}
            compiled, graph = tf.function(program, jit_compile=True, **how), plain(program)
            for args in arguments:
                _assert_close(compiled(*args), graph(*args))

        return test

    return test_of


_assert_close = functools.partial(assert_alike, rtol=1e-4, atol=1e-5)


@one_program
@pytest.mark.parametrize(
    ("function", "shape_function"),
    [
        (np.negative, lambda x: tf.TensorSpec(x.shape, x.dtype)),
        (np.negative, lambda x: hostcall.BoundedSpec(x.shape, x.dtype)),
        (lambda x: np.append(x, x), lambda x: tf.TensorSpec([2 * x.shape[0]], x.dtype)),
        (lambda x: np.outer(x, x), lambda x: tf.TensorSpec([x.shape[0]] * 2, x.dtype)),
        (np.atleast_2d, lambda x: tf.TensorSpec([1, x.shape[0]], x.dtype)),
        (np.mean, lambda x: tf.TensorSpec([], x.dtype)),
    ],
)
def test_a_size_that_a_shape_function_takes_from_a_bounded_one_is_bounded(
    function: Callable[..., Any], shape_function: Callable[[Any], Any]
) -> None:
    def called(x: np.ndarray) -> Any:
        return np.float32(0) if function is np.mean and not x.size else function(x)

    hostcall.declare(called, result=shape_function)

    def program(x: tf.Tensor, mask: tf.Tensor) -> Any:
        y = tf.numpy_function(called, [tf.boolean_mask(x, mask)], tf.float32)
        return y, tf.reduce_sum(y), tf.size(y)

    is_right(*((X, mask) for mask in MASKS))(program)()
    assert not _on_host(jitted(program), X, MASKS[0])


# Each with the ops that it has on the host.
USES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "mean": (lambda y: tf.reduce_mean(y * 2.0), set()),
    "softmax": (lambda y: tf.nn.softmax(y), set()),
    "size": (lambda y: (tf.size(y), tf.reduce_sum(tf.ones_like(y))), set()),
    "concat": (lambda y: tf.concat([y, [1.0]], 0), set()),
    "gradient": (lambda y: tf.gradients(tf.reduce_sum(tf.tanh(y) ** 2), y), set()),
    # An op that leaves no size is there in the place of its source.
    "last": (lambda y: (tf.concat([[9.0], y], 0)[-1], tf.reduce_sum(y)), {"StridedSlice"}),
    # The source is there where its size goes on.
    "roll": (lambda y: tf.roll(y, 1, 0), {"Where"}),
    "text": (
        lambda y: (tf.strings.length(tf.strings.as_string(y)), y * 2.0),
        {"AsString", "StringLength"},
    ),
}


@one_program
@pytest.mark.usefixtures("every_cluster")
@pytest.mark.parametrize(("use", "on_host"), USES.values(), ids=USES)
def test_uses_of_a_mask(use: Callable[[Any], Any], on_host: set[str]) -> None:
    def program(x: tf.Tensor, mask: tf.Tensor) -> Any:
        return use(tf.boolean_mask(x, mask)), _sorted(x)

    if not on_host:
        explained = hostcall.explain(jitted(program), X, MASKS[0])
        assert explained.functions[0].mode == "compiled"
    assert _on_host(jitted(program), X, MASKS[0]) == on_host
    is_right(*((X, mask) for mask in MASKS))(program)()


@pytest.mark.parametrize("shape", [[24], [4, 6], [2, 3, 4], [2, 1, 3, 1, 2, 1, 2, 1], [0, 3]])
def test_places_in_arrays_of_each_rank_and_dtype(shape: list[int]) -> None:
    def program(x: tf.Tensor) -> Any:
        _print(x)
        shaped = tf.reshape(x[: np.prod(shape)], shape)
        dtypes = (tf.bool, tf.int8, tf.uint16, tf.int64, tf.float32, tf.float64, tf.complex64)
        return [tf.where(tf.cast(shaped, dtype)) for dtype in dtypes]

    values = tf.constant([0.0, -0.0, 1.0, 2.0, 0.0, 3.0] * 4)
    is_right((values,), (tf.zeros_like(values),), (tf.ones_like(values),))(program)()


@is_right(*((X, mask) for mask in MASKS))
def test_values_that_leave_a_cluster_twice_have_their_sizes(x: tf.Tensor, mask: tf.Tensor) -> Any:
    y = tf.boolean_mask(x, mask) * 2.0
    _print(tf.size(y))
    return y, y, y + 0.0


@is_right(
    *((tf.constant(x, tf.float64), tf.constant(4)) for x in ([-3.0], [], [1.0, 2.0, 1.0])),
    any_size=True,
)
def test_results_of_sizes_that_xla_knows_to_be_one(x: tf.Tensor, k: tf.Tensor) -> Any:
    def counts(positions: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        ones = tf.ones_like(positions)
        return tf.math.unsorted_segment_sum(ones, positions, tf.size(values))

    tf.numpy_function(lambda v: None, [x], [])
    v = tf.stop_gradient(tf.unique(x)[0])
    u, w = tf.unique(tf.stop_gradient(tf.unique(v)[0]))
    h, g = tf.unique(v[:k])
    return counts(g, h), counts(w, u)


@is_right(*((tf.constant(x),) for x in ([], [1.0, 5.0, 9.0])), any_size=True)
def test_non_max_suppression_without_boxes(x: tf.Tensor) -> tf.Tensor:
    _print(x)
    corners = tf.concat([x[:, None]] * 2 + [x[:, None] + 2.0] * 2, 1)
    return tf.image.non_max_suppression(corners, x, 8)


@is_right(
    (tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])),
    (tf.constant([1.0]), tf.constant([2.0, 3.0])),
    (tf.constant([-1.0]), tf.constant([2.0, 3.0])),
    any_size=True,
)
def test_branches_of_sizes_that_only_xla_knows(x: tf.Tensor, y: tf.Tensor) -> Any:
    _print(x)
    chosen = tf.cond(x[0] > 0.0, lambda: x * 2.0, lambda: y + 1.0)
    return chosen * chosen, tf.cumsum(chosen)


def _sum_of_slices(part_of: Callable[[tf.Tensor], Any], turns: int, start: Any) -> Any:
    def body(i: tf.Tensor, total: tf.Tensor) -> Any:
        part = part_of(i)
        return i + 1, total + part[-1] + tf.reduce_sum(tf.cumsum(part))

    return tf.while_loop(lambda i, _: i < turns, body, (0, start))[1]


def test_slices_of_a_loop(every_cluster: None) -> None:
    def program(x: tf.Tensor) -> Any:
        _print(x)
        return _sum_of_slices(lambda i: x[i : i + 3], 6, 0.0)

    is_right((X,))(program)()
    (op,) = (op for op in hostcall.explain(jitted(program), X).host_ops if op.op == "StridedSlice")
    assert "write tf.slice(x, [begin], [size])" in op.reason


WINDOWS: dict[str, Callable[[Any, Any], Any]] = {
    "i:": lambda x, i: x[i:],
    ":i": lambda x, i: x[:i],
    "-i:": lambda x, i: x[-i:],
    ":-i": lambda x, i: x[:-i],
    "1:i": lambda x, i: x[1:i],
    "i:i+2": lambda x, i: x[i : i + 2],
    "i:4-i": lambda x, i: x[i : 4 - i],
    "...,i:": lambda x, i: x[..., i:],
    "1:3,...,:i": lambda x, i: x[1:3, ..., :i],
    "i:i+2,...": lambda x, i: x[i : i + 2, :, ...],
    "i:,1:i": lambda x, i: x[i:, 1:i],
    ":i,i:i+2": lambda x, i: x[:i, i : i + 2],
    "i:,2": lambda x, i: x[i:, 2],
    "i%n,i:": lambda x, i: x[i % len(x), i:],
    "int64": lambda x, i: x[tf.cast(i, tf.int64) : tf.cast(i, tf.int64) + 2],
}


@pytest.mark.cpu("it is about XLA's programs for it")
@one_program
@pytest.mark.each_value
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows_of_a_loop_are_cut_to_their_tensor_in_one_program(
    window: Callable[[Any, Any], Any],
) -> None:
    def program(x: tf.Tensor) -> Any:
        _print(x)
        total, count = tf.constant(0.0), 0
        for i in tf.range(-7, 9):
            taken = window(x, i)
            total += tf.reduce_sum(tf.exp(taken) * tf.cast(1 + i, tf.float32))
            count = 2 * count + tf.size(taken)
        return total, count

    matrix = tf.reshape(tf.range(24.0) / 8.0, [6, 4])
    is_right((matrix,), (matrix[:3, :3],), (matrix[:1, :3],))(program)()
    assert not _on_host(jitted(program), matrix)


@one_program
@pytest.mark.parametrize(
    "take",
    [
        lambda x, i: x[i, 1:],
        lambda x, i: x[i, ::2],
        lambda x, i: x[i, ::-1],
        lambda x, i: x[i, 1:3],
        lambda x, i: x[1:3, i],
        lambda x, i: x[i, tf.newaxis, -2:],
        lambda x, i: x[1:, ..., i : i + 1],
        lambda x, i: x[i : i + 1, 2:],
        lambda x, i: tf.strided_slice(x, tf.range(2) + i, [4, 3], shrink_axis_mask=1),
    ],
)
def test_constant_positions_beside_those_of_a_loop(take: Callable[[Any, Any], Any]) -> None:
    def program(x: tf.Tensor) -> Any:
        _print(x)
        total = tf.zeros([4])
        for i in tf.range(3):
            total = tf.pad(tf.reshape(take(x, i), [-1]), [[0, 4]])[:4] + 2.0 * total
        return total

    is_right((tf.reshape(tf.range(12.0), [3, 4]) + 1.0,))(program)()


@one_program
def test_an_element_behind_an_ellipsis_beside_a_window() -> None:
    def program(x: tf.Tensor) -> Any:
        _print(x)
        total = tf.constant(0.0)
        for i in tf.range(5):
            total += tf.reduce_sum(x[-i:]) + tf.reduce_sum(x[..., i % 4, :])
        return total

    is_right((tf.reshape(tf.range(24.0), [3, 4, 2]),))(program)()
    assert not _on_host(jitted(program), tf.ones([3, 4, 2]))


def test_an_element_past_the_end_beside_a_constant_window_is_an_error() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        _print(x)
        total = tf.zeros([2])
        for i in tf.range(4):
            total += x[i, 1:]
        return total

    with pytest.raises(tf.errors.InvalidArgumentError, match="strided_slice"):
        tf.function(program, jit_compile=True)(tf.ones([3, 3]))


@one_program
@pytest.mark.parametrize("sizes", [(2, 3), (3, 1), (1, 3), (0, 3), (6, 0)])
@pytest.mark.parametrize("kind", ["if", "switch", "loop"])
def test_branches_of_different_sizes_in_one_program(
    sizes: tuple[int, int], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    few, many = sizes

    def chosen(x: tf.Tensor, i: Any) -> tf.Tensor:
        branches = [lambda: x[:few] * 2.0, lambda: x[6 - many :]]
        if kind == "switch":
            return tf.switch_case(i, [*branches, branches[0]])
        return tf.cond(i > 0, *branches)

    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        _print(x)
        if kind == "loop":
            total = tf.constant(0.0)
            for k in tf.range(3):
                total += tf.reduce_sum(tf.exp(chosen(x, k - i)))
            return total
        part = chosen(x, i)
        return part, part * part + 1.0, tf.size(part), tf.reduce_mean(tf.concat([part, [3.0]], 0))

    is_right(*((X, tf.constant(i)) for i in range(3)))(program)()
    assert not _on_host(jitted(program), X, tf.constant(0))
    assert "different sizes" not in caplog.text  # XLA would not be asked again


BROKEN_USES: dict[str, Callable[[Any], Any]] = {
    "broadcast": lambda part: part + tf.constant([1.0, 2.0, 3.0]),
    "cumsum": tf.cumsum,
    "last": lambda part: part[-1:],
}


@pytest.mark.parametrize("use", BROKEN_USES.values(), ids=BROKEN_USES)
def test_uses_of_such_branches_that_xla_gets_wrong(use: Callable[[Any], Any]) -> None:
    def program(x: tf.Tensor, choice: tf.Tensor) -> Any:
        _print(x)
        return use(tf.cond(choice, lambda: x[:1], lambda: x[:3]))

    is_right(*((X, tf.constant(choice)) for choice in (True, False)))(program)()


def test_the_gradient_of_such_branches_and_of_windows() -> None:
    def program(x: tf.Tensor, choice: tf.Tensor) -> Any:
        _print(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            part = tf.cond(choice, lambda: x[:1] ** 2, lambda: tf.sin(x[:3]))
            total = tf.reduce_sum(part)
            for i in tf.range(3):
                total += tf.reduce_sum(x[i : i + 2] ** 2)
        return tape.gradient(total, x)

    is_right(*((X, tf.constant(choice)) for choice in (True, False)))(program)()


@is_right((-tf.abs(X),), (tf.abs(X),))
def test_the_size_of_branches_whose_values_a_gradient_keeps(x: tf.Tensor) -> Any:
    """TensorFlow notes the size of the first branch for both."""
    _print(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        part = tf.cond(x[0] > 0.0, lambda: x[:5] * 2.0, lambda: x[:2] + 1.0)
        y = tf.sin(tf.pad(part, [[1, 0]]))
    return part, tf.shape(part), tf.size(y), tape.gradient(y, x)


@one_program
def test_slices_of_a_constant_size_in_a_loop() -> None:
    def program(x: tf.Tensor) -> Any:
        return _sum_of_slices(lambda i: tf.slice(x, [i], [3]), 3, _sorted(x)[0])

    is_right((X,))(program)()
    assert not _on_host(jitted(program), X)


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("use", [tf.cumsum, tf.identity])
def test_many_sizes_are_not_as_many_compilations(use: Any, where: str) -> None:
    def loss(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        _print(x)
        return tf.reduce_sum(use(tf.sin(tf.boolean_mask(x, mask))))

    def step(f: Any, x: tf.Tensor, mask: tf.Tensor) -> Any:
        return value_and_gradient(lambda x: f(x, mask), x)

    def of(mode: Any) -> Any:
        if where == "outside":
            return functools.partial(step, mode(loss))
        return mode(functools.partial(step, loss))

    compiled, graph = of(jitted), of(plain)
    hostcall.stats(reset=True)
    x = tf.linspace(-3.0, 3.0, 200)
    for size in range(50, 150, 4):
        mask = tf.constant(np.random.default_rng(size).permutation(200) < size)
        _assert_close(compiled(x, mask), graph(x, mask))
    names = ("function", "loss", "__backward_loss")
    counts = [count for name in names for count in compilations(name)]
    assert max(counts, default=0) <= 10
    # The others are one program each, without clusters.
    assert counts or (use is tf.cumsum) == (where == "outside")


def test_the_compilation_of_a_gradient_is_bounded() -> None:
    def program(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        _print(x)
        return tf.reduce_sum(tf.sin(tf.boolean_mask(x, mask)))

    compiled = jitted(program)
    hostcall.stats(reset=True)
    for size in (3, 4, 5):
        mask = tf.range(6) < size
        gradient = gradient_of(lambda x, mask=mask: compiled(x, mask), X)
        np.testing.assert_allclose(gradient[:size], tf.cos(X)[:size], rtol=1e-5)
    (row,) = (row for row in hostcall.stats().compilations if "__backward_program" in row.cluster)
    assert (row.compilations, row.uncompiled_runs) == (1, 2)


def test_an_element_of_another_size_is_an_error() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        _print(x)
        rows = tf.raw_ops.TensorListReserve(
            element_shape=[2], num_elements=2, element_dtype=tf.float32
        )
        rows = tf.raw_ops.TensorListSetItem(input_handle=rows, index=0, item=x)
        return tf.raw_ops.TensorListGetItem(
            input_handle=rows, index=0, element_shape=[2], element_dtype=tf.float32
        )

    for jit in (False, True):
        spec = tf.TensorSpec([None], tf.float32)
        function = tf.function(program, jit_compile=jit, input_signature=[spec])
        np.testing.assert_array_equal(function(tf.constant([1.0, 2.0])), [1.0, 2.0])
        for size in (1, 6):
            with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
                function(X[:size])


def test_a_list_of_another_dtype_is_an_error() -> None:
    def program(n: tf.Tensor) -> tf.Tensor:
        _print(n)
        return tf.map_fn(lambda i: tf.cast(i, tf.int32) * 3, n)

    with pytest.raises(tf.errors.InvalidArgumentError, match="list elements"):
        jitted(program)(tf.range(4, dtype=tf.int64))


@one_program
def test_a_handle_of_a_tape_leaves_a_program_beside_a_bounded_size() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        spec = hostcall.BoundedSpec([6], tf.float32)
        return tf.py_function(lambda x: x[x > 0.2] ** 2, [x], spec) * 2.0

    expected = gradient_of(plain(program), X)
    np.testing.assert_allclose(gradient_of(jitted(program), X), expected)


# Functions that must be one program.


def _blocked(x: tf.Tensor) -> Any:
    y = tf.boolean_mask(x, x < 0)
    return tf.roll(y, 1, 0), _sorted(x)


LINE = inspect.getsourcelines(_blocked)[1]


@one_program
@pytest.mark.parametrize("how", ["uncompilable", "route"])
def test_what_must_be_one_program_is_an_error_that_names_the_op(
    how: str, request: pytest.FixtureRequest
) -> None:
    if how == "uncompilable":
        request.getfixturevalue("stock_errors")
    with hostcall.scope(route="custom_call" if how == "route" else "auto"):
        error = failure(jitted(_blocked), X)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    boolean_mask = f"op 'boolean_mask/Where' (Where) at {__file__}:{LINE + 1}"
    assert_says(error, boolean_mask, f"op 'Roll' (Roll) at {__file__}:{LINE + 2}")


@one_program
def test_export_names_the_op() -> None:
    with pytest.raises(hostcall.NotExportableError, match=re.escape(f"{__file__}:{LINE + 2}")):
        hostcall.export(jitted(_blocked), X)


# Functions that stock TensorFlow compiles.


def _stock(x: tf.Tensor) -> Any:
    y = tf.boolean_mask(x, x < 0)
    return tf.roll(y, 1, 0), tf.image.resize(x[None, :, None, None], [12, 3])


def test_explain_names_what_xla_may_get_wrong() -> None:
    explained = hostcall.explain(jitted(_stock), X)
    assert explained.functions[0].mode == "compiled"
    assert {risk.op for risk in explained.risks} == {"Roll", "ResizeBilinear"}
    line = inspect.getsourcelines(_stock)[1] + 2
    assert {risk.location for risk in explained.risks} == {f"{__file__}:{line}"}
    for shown in (str(explained), explained.to_html()):
        assert_says(shown, "What XLA may get wrong", "functions=")
    assert not hostcall.explain(jitted(lambda x: tf.reduce_mean(x**2)), X).risks


@pytest.mark.usefixtures("everywhere")
def test_checked_functions_are_right_and_those_without_risks_are_the_stock_programs() -> None:
    is_right((X,))(_stock)()
    without_risks = lambda x: tf.boolean_mask(x, x < 0) * 2.0  # noqa: E731
    for program, mode in ((_stock, "partitioned"), (without_risks, "compiled")):
        explained = hostcall.explain(jitted(program), X)
        assert (explained.functions[0].mode, [*explained.risks]) == (mode, [])


# Kernels of XLA's that are wrong whatever the sizes.


def _gradient_of(f: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], Any]:
    return lambda x: gradient_of(lambda x: f(x) * tf.cast(x > 0.2, x.dtype), x)


def _gradient_of_real(f: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], Any]:
    return lambda x: tf.gradients(tf.math.real(f(tf.complex(x, x + 1.0))), x)


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (_gradient_of(tf.sqrt), [0.0, 4.0]),
        (_gradient_of(tf.math.rsqrt), [0.0, 4.0]),
        (_gradient_of(tf.math.reciprocal), [0.0, 4.0]),
        (lambda x: tf.gradients(tf.nn.selu(x), x), [0.0, 1.0, -1.0]),
        (lambda x: tf.gradients(x[1::2] * 3.0, x), [1.0]),
        (lambda x: tf.abs(tf.cast(x, tf.int8) * tf.cast(x, tf.int8)), [12.0, 3.0, -13.0]),
        (lambda x: tf.abs(tf.cast(x, tf.int32) ** 2), [65535.0, -7.0]),
        (lambda x: tf.cast(tf.complex(tf.zeros_like(x), x), tf.bool), [0.0, 1.0]),
        (_gradient_of_real(tf.sqrt), [1.0, 2.0]),
        (_gradient_of_real(tf.math.rsqrt), [1.0, 2.0]),
        (_gradient_of_real(tf.math.reciprocal), [1.0, 2.0]),
    ],
    ids=[
        *("sqrt", "rsqrt", "reciprocal", "selu", "stride", "int8", "square", "bool"),
        *("complex sqrt", "complex rsqrt", "complex reciprocal"),
    ],
)
def test_wrong_kernels_are_written_in_others(program: Callable[..., Any], x: list[float]) -> None:
    def beside_a_callback(x: tf.Tensor) -> Any:
        z = tf.numpy_function(np.sort, [x], tf.TensorSpec([None], tf.float32))
        return program(x), tf.ensure_shape(z, x.shape)

    test = is_right((tf.constant(x),))(beside_a_callback)
    test()
    with hostcall.scope(route="partition"):  # TensorFlow's kernels run what XLA's are replaced in
        test()


@one_program
def test_a_wrong_kernel_is_called_by_the_program() -> None:
    program = lambda x: (tf.image.resize(x, [9, 7]), _sorted(x[0, 0, :, 0]))  # noqa: E731
    x = tf.random.stateless_normal([2, 5, 6, 2], [1, 2])
    explained = hostcall.explain(jitted(program), x)
    assert [op.op for op in explained.host_ops if op.in_program] == ["ResizeBilinear"]
    is_right((x,))(program)()


@is_right((X,), (-X,), (tf.abs(X),))
def test_the_search_for_a_refused_op_ends(x: tf.Tensor) -> Any:
    """XLA's message names no op, and each part of the program returns several bounded sizes."""
    _print(x)
    parts = tf.dynamic_partition(x, tf.cast(x > 0.0, tf.int32), 2)
    even = tf.switch_case(tf.size(parts[0]) % 2, [lambda: parts[0], lambda: -parts[0]])
    return even, parts, tf.size(parts[0]) % 2


@is_right((X,))
def test_a_window_in_a_loop_ends_where_the_vector_does(x: tf.Tensor) -> Any:
    """XLA gives each window its full size, and takes zeros behind the end."""
    _print(x)
    return tf.map_fn(
        lambda i: tf.reduce_mean(x[i : i + 2]), tf.range(tf.size(x)), fn_output_signature=x.dtype
    )


@pytest.mark.usefixtures("everywhere")
@is_right((X[:0],), (X,))
def test_results_of_a_program_that_xla_knows_whole(x: tf.Tensor) -> Any:
    """All its arguments are empty, so that nothing in it is unknown but the sizes."""
    values = tf.unique(tf.concat([x, [7.0]], 0))[0]
    return values, values * 1.0, tf.boolean_mask(values, values > 1.5)


OF_ONE: dict[str, Callable[[Any, Any], Any]] = {
    "mask": lambda x, limit: tf.boolean_mask(x, x[:, 0] > limit),
    "partition": lambda x, limit: tf.dynamic_partition(x, tf.cast(x[:, 0] > limit, tf.int32), 2)[1],
    "branches": lambda x, limit: tf.cond(x[0, 0] > limit, lambda: x, lambda: x[:0]),
}


@pytest.mark.parametrize("any_size", [False, True])
@pytest.mark.parametrize("source", OF_ONE.values(), ids=OF_ONE)
def test_sizes_that_are_at_most_one(source: Callable[[Any, Any], Any], any_size: bool) -> None:
    """XLA leaves out such a dimension where it reshapes, and so takes its size for 1."""

    def program(x: tf.Tensor, limit: tf.Tensor) -> Any:
        _print(x)
        part = source(x, limit)
        return tf.reshape(part, [-1]), part[None], tf.size(tf.reshape(part, [-1, 1, 3]))

    row = tf.constant([[1.0, 2.0, 3.0]])
    is_right((row, tf.constant(0.0)), (row, tf.constant(9.0)), any_size=any_size)(program)()


def test_a_slice_of_a_loop_of_which_there_is_at_most_one() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        _print(x)
        total = tf.constant(0.0)
        for i in tf.range(-2, 3):
            total = 2.0 * total + tf.reduce_sum(tf.reshape(x[i : i + 2], [-1]))
        return total

    is_right((tf.constant([[1.0, 2.0, 3.0]]),), (tf.ones([2, 3]),), any_size=True)(program)()

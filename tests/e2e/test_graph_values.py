"""The values of compiled programs at the edges of dtypes: bit for bit those of graph mode."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, jitted, like, partitioned, plain, to_numpy

pytestmark = [
    pytest.mark.usefixtures("auto_route"),
    pytest.mark.cpu("programs for other devices have XLA's values"),
]

FLOATS = [tf.half, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.int32, tf.int64]
NAN, INF = np.nan, np.inf
NUMBERS = [0.0, -0.0, 0.5, -2.5, 3.0, 100.0, INF, -INF, NAN]
ROWS = [[1.0, NAN, 3.0], [NAN, NAN, NAN], [INF, NAN, 1.0], [-INF, 2.0, -1.0], [5.0, INF, -INF]]
LARGE = {tf.int32: [46341, 65535, -50000, 3, 0, -(2**31)], tf.int64: [3037000500, -4, 7, -(2**63)]}

raw = tf.raw_ops
each_route = pytest.mark.parametrize("mode", [jitted, partitioned])
each_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
each_complex = pytest.mark.parametrize(
    "dtype", [tf.complex64, tf.complex128], ids=lambda dtype: dtype.name
)
each_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)


def same(x: np.ndarray) -> np.ndarray:
    return x


hostcall.declare(same, result=like)


def assert_as_graph_mode(mode: Any, program: Callable[..., Any], *args: tf.Tensor) -> None:
    """Run a program beside a call of Python, so that hostcall takes it."""

    def beside(*taken: tf.Tensor) -> Any:
        return tf.numpy_function(same, [taken[0]], taken[0].dtype), program(*taken)

    assert_same(_bits(mode(beside)(*args)), _bits(plain(beside)(*args)))


def _bits(structure: Any) -> Any:
    """Return arrays in which all NaNs are the same: their bits have no meaning."""

    def of_one(array: Any) -> Any:
        if array.dtype.kind in "iub":
            return array
        return np.where(np.isnan(array), array.dtype.type(NAN), array)

    return tf.nest.map_structure(of_one, to_numpy(structure))


def pairs(values: list[float], dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    first, second = np.meshgrid(values, values)
    return tf.cast(first.ravel(), dtype), tf.cast(second.ravel(), dtype)


OF_TWO_FLOATS: dict[str, Callable[..., Any]] = {
    "maximum": lambda x, y: tf.maximum(x, y + 0.25),
    "minimum": lambda x, y: tf.minimum(x, y + 0.25),
    "relu gradient": lambda x, y: raw.ReluGrad(gradients=x, features=y),
    "relu6 gradient": lambda x, y: raw.Relu6Grad(gradients=x, features=y),
    "elu gradient": lambda x, y: raw.EluGrad(gradients=x, outputs=y),
    "clip": lambda x, y: raw.ClipByValue(t=x, clip_value_min=y, clip_value_max=y[::-1]),
    "mask": lambda x, y: x * tf.cast(y > 0.0, x.dtype),
}


@pytest.mark.pairwise
@each_route
@each_float
@pytest.mark.parametrize("name", OF_TWO_FLOATS)
def test_elements_of_two_operands(name: str, dtype: tf.DType, mode: Any) -> None:
    assert_as_graph_mode(mode, OF_TWO_FLOATS[name], *pairs(NUMBERS, dtype))


OF_ONE_FLOAT: dict[str, Callable[..., Any]] = {
    "sign": tf.sign,
    "an absolute number": lambda x: tf.abs(x) >= 0.0,
    "a square": lambda x: x * x >= 0.0,
    "an exponential": lambda x: tf.less_equal(tf.zeros([], x.dtype), tf.exp(x)),
    "to int32": lambda x: tf.cast(x * 1e4, tf.int32),
    "to int64": lambda x: tf.cast(x * 1e4, tf.int64),
}


@pytest.mark.pairwise
@each_route
@each_float
@pytest.mark.parametrize("name", OF_ONE_FLOAT)
def test_elements_of_one_operand(name: str, dtype: tf.DType, mode: Any) -> None:
    assert_as_graph_mode(mode, OF_ONE_FLOAT[name], tf.constant(NUMBERS, dtype))


COMPLEX_NUMBERS = [
    *(complex(real, NAN) for real in (0.0, -0.0, 1.5, -2.0, INF, -INF, NAN)),
    *(complex(real, INF) for real in (0.0, -2.0, -INF, NAN)),
    *(3 - 4j, 1e20 + 2j, -2.5 + 1j, complex(NAN, 0)),
]
OF_ONE_COMPLEX: dict[str, Callable[..., Any]] = {
    "abs": tf.abs,
    "a length that is used": lambda x: tf.abs(x) > 1.0,
    "to int32": lambda x: tf.cast(x, tf.int32),
    "to int64": lambda x: tf.cast(x, tf.int64),
    "to uint8": lambda x: tf.cast(x, tf.uint8),
    "to uint64": lambda x: tf.cast(x, tf.uint64),
}


@pytest.mark.pairwise
@each_route
@each_complex
@pytest.mark.parametrize("name", OF_ONE_COMPLEX)
def test_elements_of_one_complex_operand(name: str, dtype: tf.DType, mode: Any) -> None:
    assert_as_graph_mode(mode, OF_ONE_COMPLEX[name], tf.constant(COMPLEX_NUMBERS, dtype))


@pytest.mark.pairwise
@each_route
@each_complex
@pytest.mark.parametrize("function", [tf.sign, tf.sqrt, tf.math.log, tf.math.log1p])
def test_no_number_comes_of_an_imaginary_part_that_is_nan(
    function: Any, dtype: tf.DType, mode: Any
) -> None:
    def program(x: tf.Tensor) -> Any:
        result = function(x)
        return tf.math.is_nan(tf.math.real(result)), tf.math.is_nan(tf.math.imag(result))

    x = tf.constant([complex(real, NAN) for real in (0.0, -0.0)], dtype)
    assert_as_graph_mode(mode, program, x)


OF_ROWS: dict[str, Callable[..., Any]] = {
    "max": lambda x: (tf.reduce_max(x, 1), tf.reduce_max(x, 0), tf.reduce_max(x)),
    "min": lambda x: (tf.reduce_min(x, 1), tf.reduce_min(x, 0), tf.reduce_min(x)),
    "argmax": lambda x: (tf.argmax(x, 1), tf.argmax(x, 0)),
    "argmin": lambda x: (tf.argmin(x, 1), tf.argmin(x, 0)),
}


@pytest.mark.pairwise
@each_route
@each_float
@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_with_nan(name: str, dtype: tf.DType, mode: Any) -> None:
    rows = [[INF] * 3, [-INF] * 3, [0.0] * 3, [-0.0] * 3, [1.0, -NAN, INF], [-2.0, -3.0, -1.5]]
    assert_as_graph_mode(mode, OF_ROWS[name], tf.constant(ROWS + rows, dtype))
    assert_as_graph_mode(mode, OF_ROWS[name], tf.constant(rows, dtype))


@each_route
@each_float
def test_softmax_of_nan_and_infinity(dtype: tf.DType, mode: Any) -> None:
    # Where numbers are not finite, so that no result is rounded.
    rows = [[-INF, NAN, -INF], [-INF] * 3, [INF, NAN, -INF], [NAN] * 3]
    assert_as_graph_mode(mode, tf.nn.softmax, tf.constant(ROWS[:3] + rows, dtype))


@each_route
def test_the_place_of_nan_among_numbers(mode: Any) -> None:
    def program(x: tf.Tensor) -> Any:
        return tf.searchsorted([0.0, 1.0, 2.0], x, side="right"), raw.Bucketize(
            input=x, boundaries=[0.0, 1.0]
        )

    assert_as_graph_mode(mode, program, tf.constant(NUMBERS))


@each_route
@each_float
def test_windows_of_nothing_but_infinity(dtype: tf.DType, mode: Any) -> None:
    x = tf.constant([-INF, -INF, -INF, 2.0, NAN, NAN, NAN, -1.0], dtype)
    assert_as_graph_mode(
        mode, lambda x: tf.nn.max_pool2d(x, [1, 2], 2, "SAME"), tf.reshape(x, [1, 1, 8, 1])
    )


@each_route
@pytest.mark.parametrize("dtype", [*FLOATS, tf.uint8, *INTEGERS], ids=lambda dtype: dtype.name)
def test_the_nearest_pixels(dtype: tf.DType, mode: Any) -> None:
    def program(x: tf.Tensor) -> Any:
        return [
            raw.ResizeNearestNeighbor(
                images=x, size=[size, 1], half_pixel_centers=way == 1, align_corners=way == 2
            )
            for size in (3, 7, 16, 50, 200)
            for way in range(3)
        ]

    x = tf.cast(tf.range(60), dtype) * (2**25 + 1 if dtype in INTEGERS else 1)
    assert_as_graph_mode(mode, program, tf.reshape(x, [1, 60, 1, 1]))


@each_route
def test_the_places_of_zeros(mode: Any) -> None:
    x = tf.constant([[0.0, -0.0, 1.0, -0.0, 0.0], [-0.0, 0.0, -1.0, 0.0, -0.0]])
    assert_as_graph_mode(mode, lambda x: (tf.math.top_k(x, 3), tf.argsort(x)), x)


@each_route
@each_integer
def test_squares_that_wrap(dtype: tf.DType, mode: Any) -> None:
    def of(square: tf.Tensor) -> Any:
        return square < 0, square // 3, square % 3, tf.abs(square), tf.sign(square)

    def program(x: tf.Tensor) -> Any:
        again = (x + 1) * (x + 1)
        return [of(v) for v in (x * x, tf.square(x), tf.pow(x, 2), again, tf.abs(x))]

    assert_as_graph_mode(mode, program, tf.constant(LARGE[dtype], dtype))


PRODUCTS: dict[str, Callable[..., Any]] = {
    "arguments of a function": lambda x: tf.function(lambda a, b: a * b)(x, x),
    "a result of a function": lambda x: tf.function(lambda a: a)(x) * x,
    "nothing added": lambda x: x * (x + 0),
    "negated twice": lambda x: x * tf.negative(-x),
    "turned twice": lambda x: x * tf.reverse(tf.reverse(x, [0]), [0]),
    "selected": lambda x: tf.where(x > 1, x, x) * x,
    "in a loop": lambda x: tf.while_loop(
        lambda i, *_: i < 2, lambda i, a, b, _: (i + 1, a, b, a * b // 3), [0, x, x, x]
    )[3],
}


@pytest.mark.pairwise
@each_route
@each_integer
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_what_xla_finds_to_be_the_same(name: str, dtype: tf.DType, mode: Any) -> None:
    def program(x: tf.Tensor) -> Any:
        product = PRODUCTS[name](x)
        return product < 0, product // 3

    assert_as_graph_mode(mode, program, tf.constant(LARGE[dtype], dtype))


@each_route
@each_integer
def test_large_exponents(dtype: tf.DType, mode: Any) -> None:
    x = tf.constant([-2, 0, 1, 2, 3, 6], dtype)
    exponents = tf.constant([64, 65, 100, 64, 65, 1000], dtype)
    assert_as_graph_mode(mode, tf.pow, x, exponents)


@each_route
@each_integer
def test_shifts_by_any_count(dtype: tf.DType, mode: Any) -> None:
    x, count = pairs([-7, -1, 0, 1, 31, 32, 33, 63, 64, 100], dtype)

    def program(x: tf.Tensor, count: tf.Tensor) -> Any:
        return tf.bitwise.left_shift(x, count), tf.bitwise.right_shift(x, count)

    assert_as_graph_mode(mode, program, x, count)


@each_route
def test_quotients_of_16_bits_are_rounded_before_their_floor(mode: Any) -> None:
    x, y = pairs([0.5, 1.0, 2.0, 7.0, 0.1, 0.3], tf.bfloat16)
    assert_as_graph_mode(mode, tf.math.floordiv, x, y)


def test_xla_has_its_own_values_where_they_are_wanted() -> None:
    x = tf.constant([1.0, NAN, 3.0])

    def program(x: tf.Tensor) -> Any:
        return tf.numpy_function(same, [x], x.dtype), tf.reduce_max(x)

    hostcall.configure(semantics="xla")
    try:
        assert jitted(program)(x)[1].numpy() == 3.0
    finally:
        hostcall.configure(semantics="graph")
    assert np.isnan(jitted(program)(x)[1].numpy())


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("dtype", [tf.complex64, tf.complex128])
def test_the_eigenvalues_of_complex_matrices(dtype: tf.DType) -> None:
    """Without a callback; stock TensorFlow compiles garbage."""
    draw = np.random.default_rng(0)
    parts = draw.standard_normal((2, 3, 4, 4))
    x = tf.constant(parts[0] + 1j * parts[1], dtype)
    matrix = x + tf.linalg.adjoint(x)

    def program(matrix: tf.Tensor) -> Any:
        values, vectors = tf.linalg.eigh(matrix)
        return values, tf.matmul(vectors * values[:, None, :], vectors, adjoint_b=True)

    values, product = jitted(program)(matrix)
    tolerance = 1e-4 if dtype == tf.complex64 else 1e-10
    np.testing.assert_allclose(product, matrix, atol=tolerance)
    np.testing.assert_allclose(values, plain(program)(matrix)[0], atol=tolerance)

"""Random numbers of compiled programs: bit for bit those of graph mode, in the same order."""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.ops import OPS
from hostcall._tf.graph import op_kinds, protos
from tests.support.helpers import assert_same, jitted, like, partitioned, plain, to_numpy

pytestmark = [
    pytest.mark.usefixtures("auto_route"),
    pytest.mark.cpu("programs for other devices have XLA's random numbers"),
]

FLOATS = [tf.half, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.int32, tf.int64]
SHAPES = [[], [3, 0, 2], [3, 67]]
SEED = [12345, -678]
each_route = pytest.mark.parametrize("mode", [jitted, partitioned])
raw = tf.raw_ops


def same(x: np.ndarray) -> np.ndarray:
    return x


hostcall.declare(same, result=like)


def beside(x: Any) -> Any:
    """Call Python, so that hostcall takes the function, and return the tensor."""
    return tf.numpy_function(same, [x], x.dtype)


def seeded(draw: Callable[..., Any]) -> Callable[[tf.Tensor], Any]:
    """A program that draws by a seed which XLA does not know."""
    return lambda seed: draw(beside(seed))


def assert_drawn_as_plain(mode: Any, program: Callable[..., Any], *args: Any) -> None:
    assert_same(to_numpy(mode(program)(*args)), to_numpy(plain(program)(*args)))


def stateless_floats(seed: Any, shape: Any, dtype: tf.DType) -> Any:
    return [
        draw(shape, seed, dtype=dtype)
        for draw in (
            tf.random.stateless_uniform,
            tf.random.stateless_normal,
            tf.random.stateless_truncated_normal,
        )
    ]


def floats_of_old_models(seed: Any, shape: Any, dtype: tf.DType) -> Any:
    return [
        draw(shape=shape, seed=seed, dtype=dtype)
        for draw in (
            raw.StatelessRandomUniform,
            raw.StatelessRandomNormal,
            raw.StatelessTruncatedNormal,
        )
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("seed_type", INTEGERS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("draw", [stateless_floats, floats_of_old_models])
def test_floats_of_seeds(draw: Any, dtype: tf.DType, seed_type: tf.DType) -> None:
    program = seeded(lambda seed: [draw(seed, shape, dtype) for shape in SHAPES])
    assert_drawn_as_plain(jitted, program, tf.constant(SEED, seed_type))


@pytest.mark.each_value
@pytest.mark.parametrize("seed_type", INTEGERS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_seeds(dtype: tf.DType, seed_type: tf.DType) -> None:
    def draw(seed: Any) -> Any:
        low, high = tf.constant(-7, dtype), tf.constant(9, dtype)
        return [
            tf.random.stateless_uniform([70], seed, -5, 100, dtype),
            tf.random.stateless_uniform([70], seed, dtype.min, dtype.max, dtype),
            tf.random.stateless_uniform([70], seed, minval=None, dtype=dtype),
            raw.StatelessRandomUniformInt(shape=[70], seed=seed, minval=low, maxval=high),
            raw.StatelessRandomUniformFullInt(shape=[70], seed=seed, dtype=dtype),
        ]

    assert_drawn_as_plain(jitted, seeded(draw), tf.constant(SEED, seed_type))


def other_distributions(seed: Any) -> Any:
    return [
        tf.random.stateless_categorical(tf.reshape(tf.range(12.0), [3, 4]), 50, seed),
        tf.random.stateless_gamma([5], seed, 1.5),
        tf.random.stateless_binomial([5], seed, 10.0, 0.3),
        tf.random.stateless_poisson([5], seed, 3.0),
        tf.random.stateless_parameterized_truncated_normal([5], seed),
        tf.random.experimental.stateless_shuffle(tf.range(9), seed),
    ]


def seeds_of_seeds(seed: Any) -> Any:
    old = raw.StatelessRandomGetKeyCounterAlg(seed=seed)
    return [tf.random.fold_in(seed, 3), tf.random.split(seed, 3), *old]


def shapes_of_operands(seed: Any) -> Any:
    x = tf.zeros([seed.shape[0] + 1, 5])
    return [
        tf.random.stateless_normal(tf.shape(x), seed),
        tf.random.stateless_uniform(tf.shape(x, tf.int64)[:1], seed),
        tf.random.stateless_normal([tf.size(x)], seed, dtype=tf.float64),
    ]


def algorithms(seed: Any) -> Any:
    draws = (tf.random.stateless_uniform, tf.random.stateless_normal)
    return [draw([9], seed, alg=alg) for draw in draws for alg in ("philox", "auto_select")]


def in_a_loop(seed: Any) -> Any:
    drawn = tf.TensorArray(tf.float32, 4, element_shape=[3])
    for i in tf.range(4):
        drawn = drawn.write(i, tf.random.stateless_normal([3], seed + i))
    return drawn.stack()


def in_a_branch(seed: Any) -> Any:
    if seed[0] > 0:
        drawn = tf.random.stateless_uniform([3], seed)
    else:
        drawn = tf.random.stateless_normal([3], seed)
    return drawn


def for_each_of_a_batch(seed: Any) -> Any:
    draw = functools.partial(tf.random.stateless_normal, [3])
    seeds = tf.stack([seed, seed + 1])
    mapped = tf.map_fn(draw, seeds, fn_output_signature=tf.float32)
    return mapped, tf.vectorized_map(draw, seeds)


def through_dropout(seed: Any) -> Any:
    x = tf.linspace(1.0, 2.0, 50)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.experimental.stateless_dropout(x, 0.5, seed)
    return y, tape.gradient(y, x)


@each_route
@pytest.mark.parametrize(
    "draw",
    [
        other_distributions,
        seeds_of_seeds,
        shapes_of_operands,
        algorithms,
        in_a_loop,
        in_a_branch,
        for_each_of_a_batch,
        through_dropout,
    ],
)
def test_numbers_of_seeds(draw: Any, mode: Any) -> None:
    assert_drawn_as_plain(mode, lambda seed: draw(beside(seed)), tf.constant(SEED))


def test_numbers_of_constant_seeds() -> None:
    def program(x: tf.Tensor) -> Any:
        return beside(x), [stateless_floats(SEED, [5000], dtype) for dtype in FLOATS[:3]]

    assert_drawn_as_plain(jitted, program, tf.constant(1.0))


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_a_million_numbers(dtype: tf.DType) -> None:
    program = seeded(lambda seed: stateless_floats(seed, [1_000_003], dtype))
    assert_drawn_as_plain(jitted, program, tf.constant(SEED))


def streams(mode: Any, program: Callable[[tf.Tensor], Any]) -> Any:
    """What calls return, one after the other, and again after the seed was set once more."""
    tf.random.set_seed(7)
    function = mode(program)
    drawn = [function(tf.constant(1.0)) for _ in range(3)]
    tf.random.set_seed(7)
    return to_numpy([*drawn, function(tf.constant(1.0)), function(tf.constant([1.0]))])


def several_ops(_: tf.Tensor) -> Any:
    return [
        tf.random.uniform([5]),
        tf.random.normal([5], dtype=tf.float64),
        tf.random.truncated_normal([5], dtype=tf.half),
        tf.random.uniform([5], 0, 100, tf.int64),
        tf.random.categorical(tf.zeros([2, 5]), 4),
        tf.random.shuffle(tf.range(9)),
        tf.random.gamma([5], 1.5),
        raw.ParameterizedTruncatedNormal(
            shape=[5], means=0.0, stdevs=1.0, minvals=-1.0, maxvals=1.0, seed=3
        ),
        tf.random.uniform([5], seed=5),
        tf.random.uniform([5], seed=5),
    ]


def an_inner_function(_: tf.Tensor) -> Any:
    inner = tf.function(lambda: (tf.random.uniform([3]), tf.random.poisson([3], 4.0)))
    outer = tf.function(lambda: (inner(), inner()))
    return inner(), inner(), outer(), outer()


def an_inner_function_that_is_not_inlined(_: tf.Tensor) -> Any:
    inner = tf.function(lambda: tf.random.uniform([3]), experimental_attributes={"_noinline": True})
    return inner(), inner()


def a_loop_with_calls(_: tf.Tensor) -> Any:
    inner = tf.function(lambda: tf.random.uniform([3]))
    drawn = tf.TensorArray(tf.float32, 4, element_shape=[2, 3])
    for i in tf.range(4):  # iterations that run at once draw in any order
        tf.autograph.experimental.set_loop_options(parallel_iterations=1)
        drawn = drawn.write(i, tf.stack([inner(), tf.random.normal([3])]))
    return drawn.stack(), inner()


def branches(x: tf.Tensor) -> Any:
    def draw() -> Any:
        return tf.random.uniform([3])

    condition = tf.reduce_sum(x) > 0.0
    return tf.cond(condition, draw, lambda: tf.random.normal([3])), draw()


def dropout_with_a_gradient(_: tf.Tensor) -> Any:
    x = tf.linspace(1.0, 2.0, 50)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.dropout(x, 0.5)
    return y, tape.gradient(y, x)


@each_route
@pytest.mark.parametrize(
    "draw",
    [
        several_ops,
        an_inner_function,
        an_inner_function_that_is_not_inlined,
        a_loop_with_calls,
        branches,
        dropout_with_a_gradient,
    ],
)
def test_streams_of_ops_with_seeds(draw: Any, mode: Any) -> None:
    def program(x: tf.Tensor) -> Any:
        return draw(beside(x))

    assert_same(streams(mode, program), streams(plain, program))


def one_op(_: tf.Tensor) -> Any:
    return tf.random.uniform([3])


def beside_strings(x: tf.Tensor) -> Any:
    return tf.random.uniform([3]), tf.strings.length(tf.strings.as_string(x))


@pytest.mark.each_value
@each_route
@pytest.mark.parametrize(
    "draw",
    [
        one_op,
        beside_strings,
        several_ops,
        an_inner_function,
        a_loop_with_calls,
        branches,
    ],
)
@pytest.mark.parametrize("caller", [plain, jitted])
def test_a_compiled_function_called_twice(caller: Any, draw: Any, mode: Any) -> None:
    def twice(mode: Any, caller: Any) -> Any:
        inner = mode(lambda x: draw(beside(x)))
        return streams(caller, lambda x: (inner(x), inner(x)))

    assert_same(twice(mode, caller), twice(plain, plain))


@each_route
def test_a_compiled_function_of_four_bits_called_twice(mode: Any) -> None:
    def twice(mode: Any) -> Any:
        inner = mode(lambda x: (tf.random.uniform([3]), beside(x)))
        small = tf.constant(np.array([1, 2, -3]).astype("int4"))
        return streams(plain, lambda x: (inner(small)[0], inner(small)[0]))

    assert_same(twice(mode), twice(plain))


@each_route
def test_a_compiled_function_that_is_not_inlined_called_twice(mode: Any) -> None:
    def twice(mode: Any) -> Any:
        inner = mode(lambda x: one_op(beside(x)))
        attributes = {"_noinline": True}
        shared = tf.function(lambda x: inner(x), experimental_attributes=attributes)
        return streams(plain, lambda x: (shared(x), shared(x)))

    assert_same(twice(mode), twice(plain))


def test_bound_functions_start_again_where_the_seed_is_set() -> None:
    def program(x: tf.Tensor) -> Any:
        return tf.random.uniform([3]) + 0.0 * beside(x)

    x = tf.constant(1.0)
    tf.random.set_seed(7)
    bound = hostcall.bind(jitted(program), x)
    expected = streams(plain, program)
    tf.random.set_seed(7)
    assert_same(to_numpy([bound(x) for _ in range(3)]), expected[:3])
    tf.random.set_seed(7)
    assert_same(to_numpy(bound(x)), expected[3])


def of_a_dataset(mode: Any) -> Any:
    tf.random.set_seed(7)
    function = mode(lambda x: tf.random.uniform([3]) + 0.0 * beside(x))
    dataset = tf.data.Dataset.range(4).map(lambda i: function(tf.cast(i, tf.float32)))
    return [[element.numpy() for element in dataset] for _ in range(2)]


def of_a_session(mode: Any) -> Any:
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(7)
        function = mode(lambda x: tf.random.uniform([3]) + 0.0 * beside(x))
        drawn = [function(tf.constant(1.0)) for _ in range(2)]
        with tf.compat.v1.Session() as session:
            return [session.run(drawn) for _ in range(3)]


@each_route
@pytest.mark.parametrize("run", [of_a_dataset, of_a_session])
def test_streams_in(run: Any, mode: Any) -> None:
    assert_same(run(mode), run(plain))


@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written:UserWarning")
def test_streams_of_a_saved_model(tmp_path: Path) -> None:
    def program(x: tf.Tensor) -> Any:
        return tf.random.uniform([3], seed=4), tf.random.stateless_normal([3], SEED), beside(x)

    def loaded(mode: Any) -> Any:
        tf.random.set_seed(7)
        module = tf.Module()
        module.program = mode(program)
        module.program.get_concrete_function(tf.TensorSpec([], tf.float32))
        path = str(tmp_path / mode.__name__)
        tf.saved_model.save(module, path)
        function = tf.saved_model.load(path).program
        return to_numpy([function(tf.constant(1.0)) for _ in range(3)])

    assert_same(loaded(jitted), loaded(plain))


# Draws from a generator, by name.
GENERATORS: dict[str, Callable[[tf.random.Generator], Any]] = {
    "floats": lambda g: [draw([5, 3]) for draw in (g.uniform, g.normal, g.truncated_normal)],
    "halves": lambda g: [g.uniform([5], dtype=tf.half), g.normal([5], dtype=tf.bfloat16)],
    "doubles": lambda g: [g.uniform([5], dtype=tf.float64), g.normal([5], dtype=tf.float64)],
    "integers": lambda g: [g.uniform([5], 0, 10, tf.int32), g.uniform_full_int([5], tf.int64)],
    "seeds": lambda g: [g.make_seeds(2), g.normal([3])],
    "skips": lambda g: [g.skip(3), g.normal([3]), g.skip(2**40)],
    "a binomial distribution": lambda g: [g.binomial([3], 10.0, 0.3), g.normal([3])],
    "a loop": lambda g: tf.while_loop(
        lambda i, _: i < 4, lambda i, x: (i + 1, tf.maximum(x, g.uniform([2]))), [0, tf.zeros([2])]
    ),
}


def of_old_models(generator: tf.random.Generator, dtype: tf.DType) -> Any:
    operands = {
        "resource": generator.state.handle,
        "algorithm": tf.constant(1, tf.int64),
        "shape": tf.constant([3, 7], tf.int64),
    }
    if dtype in INTEGERS:
        ends = {"minval": tf.constant(-3, dtype), "maxval": tf.constant(10, dtype)}
        full = raw.StatefulUniformFullInt(**operands, dtype=dtype)
        return full, raw.StatefulUniformInt(**operands, **ends)
    ops = (raw.StatefulUniform, raw.StatefulStandardNormalV2, raw.StatefulTruncatedNormal)
    return [op(**operands, dtype=dtype) for op in ops]


for _dtype in (*FLOATS, *INTEGERS):
    GENERATORS[f"old models, {_dtype.name}"] = functools.partial(of_old_models, dtype=_dtype)


@pytest.mark.each_value
@each_route
@pytest.mark.parametrize("state", [[3, 4, 5], [-1, -1, -1]], ids=["some", "carries"])
@pytest.mark.parametrize("name", GENERATORS)
def test_numbers_and_states_of_generators(name: str, state: Any, mode: Any) -> None:
    def drawn(mode: Any) -> Any:
        generator = tf.random.Generator.from_state(tf.constant(state, tf.int64), alg="philox")
        function = mode(lambda x: (beside(x), GENERATORS[name](generator)))
        runs = [(function(tf.constant(1.0)), generator.state.read_value()) for _ in range(3)]
        return to_numpy(runs)

    assert_same(drawn(mode), drawn(plain))


def dropped_in_fit(compiled: bool, steps: int) -> list[np.ndarray]:
    """What layers that drop units and add noise return, in the order of the batches."""
    found: list[np.ndarray] = []

    class Record(keras.layers.Layer):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            tf.numpy_function(lambda x: found.append(x.copy()), [inputs], [])
            return inputs

    keras.utils.set_random_seed(7)
    layers = [keras.layers.Dropout(0.5), keras.layers.GaussianNoise(1.0), Record()]
    model = keras.Sequential([keras.Input([6]), *layers, keras.layers.Dense(1)])
    how = {"jit_compile": compiled, "steps_per_execution": steps}
    model.compile(optimizer="sgd", loss="mse", **how)
    model.fit(np.ones([24, 6]), np.ones([24, 1]), batch_size=8, epochs=2, verbose=0)
    return found


@pytest.mark.parametrize("steps", [1, 3])
def test_keras_drops_the_same_units_in_fit(steps: int) -> None:
    compiled = dropped_in_fit(True, steps)
    assert len(compiled) == 6
    assert_same(compiled, dropped_in_fit(False, steps))


def test_ops_without_seeds_stay_in_the_program() -> None:
    def on_host(seed: int) -> list[str]:
        def program(x: tf.Tensor) -> Any:
            return beside(x), raw.RandomUniform(shape=[3], dtype=tf.float32, seed=seed)

        rewritten = hostcall.explain(jitted(program), tf.constant(1.0)).rewritten
        return [one.op for one in rewritten]

    assert on_host(seed=3) == ["RandomUniform"]
    assert on_host(seed=0) == []


@pytest.fixture
def of_xla() -> Iterator[None]:
    hostcall.configure(random_numbers="xla")
    yield
    hostcall.configure(random_numbers="graph")


@pytest.mark.usefixtures("of_xla")
def test_xla_draws_its_own_where_the_user_wants_that() -> None:
    program = seeded(lambda seed: tf.random.stateless_uniform([3], seed))
    seed = tf.constant(SEED)
    stock = jitted(lambda seed: tf.random.stateless_uniform([3], seed))(seed)
    assert_same(jitted(program)(seed).numpy(), stock.numpy())
    assert not np.array_equal(stock, plain(program)(seed))


def test_threefry_remains_xla_s() -> None:
    def draw(seed: tf.Tensor) -> Any:
        return tf.random.stateless_uniform([3], seed, alg="threefry")

    seed = tf.constant(SEED)
    assert_same(jitted(seeded(draw))(seed).numpy(), jitted(draw)(seed).numpy())
    # The second one from TensorFlow 2.22 on.
    refused = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)
    with pytest.raises(refused, match=r"counter|only supported under XLA"):
        plain(draw)(seed)


# Ops whose XLA kernels compute the same, or draw arbitrary numbers in graph mode, too.
EQUAL = {
    "RandomGammaGrad",
    "RngReadAndSkip",
    "RngSkip",
    "StatelessRandomGetAlg",
    "StatelessRandomUniformFullIntV2",
    "StatelessRandomUniformIntV2",
}


def test_all_random_ops_that_xla_has_are_known() -> None:
    words = re.compile("Random|Normal$|NormalV2|Multinomial|Shuffle|Stateful|Rng|Binomial|Poisson")
    found = {name for name in dir(raw) if words.search(name) and _has_kernel(name)}
    assert found - EQUAL == {op for op in found if op in OPS and OPS[op].differences}
    assert found > EQUAL


def _has_kernel(name: str) -> bool:
    """Return whether XLA has a kernel of an op, for seeds of 32 bits."""
    node = protos.node_def_pb2.NodeDef(name=name, op=name)
    for attr in op_kinds.op_def(name).attr:
        if attr.HasField("default_value"):
            node.attr[attr.name].CopyFrom(attr.default_value)
        if attr.type == "type" and ("seed" in attr.name or not node.attr[attr.name].type):
            allowed = attr.allowed_values.list.type or [tf.float32.as_datatype_enum]
            wanted = tf.int32.as_datatype_enum if "seed" in attr.name else allowed[-1]
            node.attr[attr.name].type = wanted
    return bool(op_kinds.has_xla_kernel(node, "CPU"))

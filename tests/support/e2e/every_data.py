"""Cases of random ops, candidate samplers, datasets, iterators and optionals."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support.e2e.every_op import case, cases, raw_case

_SEED = tf.constant([3, 4])


def _labels(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int64)[:, None]


# Those with a state of their own begin anew with each function: equal seeds give equal values.
cases(
    RandomPoissonV2=lambda x: tf.random.poisson([3], x, seed=5),
    RandomGamma=lambda x: tf.raw_ops.RandomGamma(shape=[3], alpha=x, seed=5, seed2=6),
    StatelessRandomPoisson=lambda x: tf.random.stateless_poisson([3, 4], _SEED, x),
    StatelessRandomBinomial=lambda x: tf.random.stateless_binomial([4], _SEED, x * 4.0, 0.5),
    StatelessShuffle=lambda x: tf.random.experimental.stateless_shuffle(x, _SEED) * 2.0,
    RandomIndexShuffle=lambda x: tf.raw_ops.RandomIndexShuffle(
        index=tf.cast(x, tf.int32), seed=tf.constant([1, 2, 3]), max_index=9
    ),
    UniformCandidateSampler=lambda x: tf.random.uniform_candidate_sampler(
        _labels(x), 1, 3, True, 9, seed=5
    ),
    LogUniformCandidateSampler=lambda x: tf.random.log_uniform_candidate_sampler(
        _labels(x), 1, 3, True, 9, seed=5
    ),
    LearnedUnigramCandidateSampler=lambda x: tf.random.learned_unigram_candidate_sampler(
        _labels(x), 1, 3, True, 9, seed=5
    ),
    FixedUnigramCandidateSampler=lambda x: tf.random.fixed_unigram_candidate_sampler(
        _labels(x), 1, 3, True, 4, unigrams=[1.0, 2.0, 3.0, 4.0], seed=5
    ),
    AllCandidateSampler=lambda x: tf.random.all_candidate_sampler(_labels(x), 1, 4, True, seed=5),
    ComputeAccidentalHits=lambda x: tf.nn.compute_accidental_hits(
        _labels(x), tf.cast(x, tf.int64), 1
    ),
    RangeDataset=lambda x: (
        tf.data.Dataset.range(tf.cast(x[1], tf.int64)).reduce(_zero(), lambda a, b: a + b) * 2
    ),
    ReduceDataset=lambda x: (
        tf.data.Dataset.from_tensor_slices(x).map(tf.sin).reduce(0.0, lambda a, b: a + b)
    ),
    TensorSliceDataset=lambda x: _total(tf.data.Dataset.from_tensor_slices(x)),
    TensorDataset=lambda x: _total(tf.data.Dataset.from_tensors(x)),
    MapDataset=lambda x: _total(tf.data.Dataset.from_tensor_slices(x).map(lambda v: v * v)),
    FilterDataset=lambda x: _total(tf.data.Dataset.from_tensor_slices(x).filter(lambda v: v > 1.0)),
    BatchDatasetV2=lambda x: _total(tf.data.Dataset.from_tensor_slices(x).batch(2)),
    TakeDataset=lambda x: _total(tf.data.Dataset.from_tensor_slices(x).take(2)),
    ZipDataset=lambda x: _total(
        tf.data.Dataset.zip(tf.data.Dataset.from_tensor_slices(x)).map(tf.reduce_sum)
    ),
    ConcatenateDataset=lambda x: _total(
        tf.data.Dataset.from_tensor_slices(x).concatenate(tf.data.Dataset.from_tensors(x[0]))
    ),
    DatasetCardinality=lambda x: tf.data.Dataset.from_tensor_slices(x).repeat(3).cardinality() * 2,
    DatasetToSingleElement=lambda x: (
        tf.data.Dataset.from_tensors(x).map(tf.cos).get_single_element()
    ),
)
case("StatelessRandomGammaV3", lambda x: tf.random.stateless_gamma([3, 4], _SEED, x), gradient=True)
raw_case("StatelessRandomGammaV2", shape=[3, 4], seed=_SEED, alpha=lambda x: x)
case(
    "StatefulRandomBinomial",
    lambda g, x: g.binomial([4], x * 4.0, 0.5),
    setup=lambda _: tf.random.Generator.from_seed(3),
    effects=lambda g: g.state.numpy(),
)


def _zero() -> tf.Tensor:
    """Return the initial value of sums of int64."""
    return tf.zeros([], tf.int64)


def _total(dataset: Any) -> tf.Tensor:
    return dataset.reduce(0.0, lambda total, value: total + tf.reduce_sum(value)) * 2.0


def _iterator(folder: Path) -> Any:
    del folder
    return iter(tf.data.Dataset.range(100).map(tf.identity))


def _next(iterator: Any) -> Any:
    return iterator.get_next_as_optional().get_value().numpy()


case(
    "IteratorGetNext",
    lambda iterator, x: tf.cast(next(iterator), tf.float32) * x,
    setup=_iterator,
    effects=_next,
)


@case("IteratorGetNextAsOptional", setup=_iterator, effects=_next)
@case("OptionalHasValue", setup=_iterator, effects=_next)
@case("OptionalGetValue", setup=_iterator, effects=_next)
def _optional(iterator: Any, x: tf.Tensor) -> Any:
    optional = iterator.get_next_as_optional()
    return optional.has_value(), tf.cast(optional.get_value(), tf.float32) * x


cases(
    OptionalFromValue=lambda x: tf.experimental.Optional.from_value(x * 2.0).get_value() + 1.0,
    OptionalNone=lambda x: tf.logical_or(
        tf.experimental.Optional.empty(tf.TensorSpec([4])).has_value(), x > 1.0
    ),
)


@case("AnonymousIteratorV3")
@case("MakeIterator")
def _iterated(x: tf.Tensor) -> tf.Tensor:
    iterator = iter(tf.data.Dataset.from_tensor_slices(x).map(lambda v: v * 2.0))
    return next(iterator) + next(iterator) * 3.0

"""Cases of random ops, candidate samplers, datasets, iterators and optionals."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support.e2e.every_op import case, cases, raw_case
from tests.support.e2e.every_op import longs as _longs

_SEED = tf.constant([3, 4])
_slices = tf.data.Dataset.from_tensor_slices


def _labels(x: tf.Tensor) -> tf.Tensor:
    return _longs(x)[:, None]


def _sampled(sampler: Any, *args: Any, **options: Any) -> Any:
    return lambda x: sampler(_labels(x), 1, *args, seed=5, **options)


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
    UniformCandidateSampler=_sampled(tf.random.uniform_candidate_sampler, 3, True, 9),
    LogUniformCandidateSampler=_sampled(tf.random.log_uniform_candidate_sampler, 3, True, 9),
    LearnedUnigramCandidateSampler=_sampled(
        tf.random.learned_unigram_candidate_sampler, 3, True, 9
    ),
    FixedUnigramCandidateSampler=_sampled(
        tf.random.fixed_unigram_candidate_sampler, 3, True, 4, unigrams=[1.0, 2.0, 3.0, 4.0]
    ),
    AllCandidateSampler=_sampled(tf.random.all_candidate_sampler, 4, True),
    ComputeAccidentalHits=lambda x: tf.nn.compute_accidental_hits(_labels(x), _longs(x), 1),
    RangeDataset=lambda x: (
        tf.data.Dataset.range(_longs(x)[1]).reduce(tf.zeros([], tf.int64), lambda a, b: a + b) * 2
    ),
    ReduceDataset=lambda x: _slices(x).map(tf.sin).reduce(0.0, lambda a, b: a + b),
    TensorSliceDataset=lambda x: _total(_slices(x)),
    TensorDataset=lambda x: _total(tf.data.Dataset.from_tensors(x)),
    MapDataset=lambda x: _total(_slices(x).map(lambda v: v * v)),
    FilterDataset=lambda x: _total(_slices(x).filter(lambda v: v > 1.0)),
    BatchDatasetV2=lambda x: _total(_slices(x).batch(2)),
    TakeDataset=lambda x: _total(_slices(x).take(2)),
    ZipDataset=lambda x: _total(tf.data.Dataset.zip(_slices(x)).map(tf.reduce_sum)),
    ConcatenateDataset=lambda x: _total(_slices(x).concatenate(tf.data.Dataset.from_tensors(x[0]))),
    DatasetCardinality=lambda x: _slices(x).repeat(3).cardinality() * 2,
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


def _total(dataset: Any) -> tf.Tensor:
    return dataset.reduce(0.0, lambda total, value: total + tf.reduce_sum(value)) * 2.0


def _iterator(_: Path) -> Any:
    return iter(tf.data.Dataset.range(100).map(tf.identity))


def _next(iterator: Any) -> Any:
    return iterator.get_next_as_optional().get_value().numpy()


_on_iterator: dict[str, Any] = {"setup": _iterator, "effects": _next}
case("IteratorGetNext", lambda i, x: tf.cast(next(i), tf.float32) * x, **_on_iterator)


@case("IteratorGetNextAsOptional", **_on_iterator)
@case("OptionalHasValue", **_on_iterator)
@case("OptionalGetValue", **_on_iterator)
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
    iterator = iter(_slices(x).map(lambda v: v * 2.0))
    return next(iterator) + next(iterator) * 3.0

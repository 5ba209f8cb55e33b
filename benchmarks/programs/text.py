"""Programs that take strings."""

import collections
import math
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.programs.program import Decorator, Function, Program, draws
from benchmarks.steps import Array

SENTENCES, PLACES, SIZE = 16, 20, 64
WORDS = np.array([b"."] + [f"word{i}".encode() for i in range(199)])


def bleu_of(words: list[bytes], reference: list[bytes]) -> float:
    logarithms = []
    for n in (1, 2):
        counts = [
            collections.Counter(zip(*(s[i:] for i in range(n)), strict=False))
            for s in (words, reference)
        ]
        shared = sum((counts[0] & counts[1]).values())
        logarithms.append(math.log((shared + 0.01) / (counts[0].total() + 0.01)))
    brevity = min(0.0, 1.0 - len(reference) / max(len(words), 1))
    return math.exp(brevity + sum(logarithms) / 2)


def bleu(tokens: Array, references: Array) -> Array:
    sentences = [b" ".join(WORDS[row]).partition(b".")[0].split() for row in tokens]
    pairs = zip(sentences, references, strict=True)
    scores = [bleu_of(words, reference.split()) for words, reference in pairs]
    return np.array(scores, np.float32)


def reward(part: Decorator) -> Function:
    """Build a step of a translator that learns from BLEU as a reward."""

    @part
    def drawn_from(logits: Any, noise: Any) -> Any:
        return tf.argmax(logits + noise, axis=-1), tf.argmax(logits, axis=-1)

    @part
    def loss_of(logits: Any, drawn: Any, advantage: Any) -> Any:
        by_word = tf.nn.sparse_softmax_cross_entropy_with_logits(drawn, logits)
        return tf.reduce_sum(advantage[:, None] * by_word)

    def rewards(tokens: Any, references: Any) -> Any:
        found = tf.numpy_function(bleu, [tokens, references], tf.float32)
        found.set_shape([SENTENCES])
        return found

    def step(logits: Any, noise: Any, references: Any) -> Any:
        drawn, best = drawn_from(logits, noise)
        advantage = rewards(drawn, references) - rewards(best, references)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = loss_of(logits, drawn, advantage)
        return logits - 0.1 * tape.gradient(loss, logits), tf.reduce_mean(advantage)

    return step


def vocabulary(part: Decorator) -> Function:
    """Build a classifier of sentences: split, looked up in a table, embedded, averaged."""
    values = tf.range(len(WORDS), dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(WORDS, values), 0)

    @part
    def classified(numbers: Any, weights: Any, head: Any) -> Any:
        counted = tf.cast(numbers > 0, tf.float32)[:, :, None]
        mean = tf.reduce_sum(counted * tf.gather(weights, numbers), 1) / tf.reduce_sum(counted, 1)
        return tf.nn.softmax(tf.matmul(tf.nn.relu(mean), head))

    def step(sentences: Any, weights: Any, head: Any) -> Any:
        words = tf.strings.split(sentences).to_tensor(b".", shape=[SENTENCES, PLACES])
        return classified(table.lookup(words), weights, head)

    return step


def buckets(part: Decorator) -> Function:
    """Build features of a recommender: strings to buckets, to embeddings, to a score."""

    @part
    def scored(users: Any, items: Any, weights: Any) -> Any:
        return tf.reduce_sum(tf.gather(weights, users) * tf.gather(weights, items), axis=1)

    def step(users: Any, items: Any, weights: Any) -> Any:
        hashed = [tf.strings.to_hash_bucket_fast(names, len(WORDS)) for names in (users, items)]
        return scored(*hashed, weights)

    return step


def ragged(part: Decorator) -> Function:
    """Build the mean of the embeddings of each sentence, by a ragged tensor of its words."""

    @part
    def scores(means: Any, head: Any) -> Any:
        return tf.nn.softmax(tf.matmul(tf.nn.relu(means), head))

    def step(sentences: Any, weights: Any, head: Any) -> Any:
        words = tf.strings.split(sentences)
        numbers = tf.strings.to_hash_bucket_fast(words.values, len(WORDS))
        embedded = words.with_values(tf.gather(weights, numbers))
        return scores(tf.reduce_mean(embedded, axis=1), head)

    return step


def edits(words: Array, others: Array) -> Array:
    """Return the edit distance of each pair of rows."""
    distances = np.arange(words.shape[1] + 1)[None].repeat(len(words), axis=0)
    for i in range(others.shape[1]):
        before, distances = distances, np.empty_like(distances)
        distances[:, 0] = i + 1
        for j in range(words.shape[1]):
            change = before[:, j] + (words[:, j] != others[:, i])
            least = np.minimum(before[:, j + 1], distances[:, j]) + 1
            distances[:, j + 1] = np.minimum(change, least)
    return distances[:, -1].astype(np.float32)


def error_rate(part: Decorator) -> Function:
    """Build the word error rate of what a recognizer has heard."""

    @part
    def decoded(logits: Any) -> Any:
        return tf.argmax(tf.nn.log_softmax(logits), axis=-1, output_type=tf.int32)

    def step(logits: Any, references: Any) -> Any:
        distance = tf.numpy_function(edits, [decoded(logits), references], tf.float32)
        distance.set_shape([SENTENCES])
        return tf.reduce_mean(distance) / PLACES

    return step


def _sentences(seed: int) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [
        b" ".join(random.choice(WORDS[1:], random.integers(5, PLACES))) for _ in range(SENTENCES)
    ]


def programs() -> list[Program]:
    weights, head, sentences = draws(len(WORDS), SIZE), draws(SIZE, 5), tf.constant(_sentences(0))
    logits = draws(SENTENCES, PLACES, len(WORDS))
    names = [tf.constant([f"{kind}{i}" for i in range(256)]) for kind in ("user", "item")]
    spoken = np.random.default_rng(1).integers(0, len(WORDS), [SENTENCES, PLACES])
    noise = draws(SENTENCES, PLACES, len(WORDS), seed=1)
    return [
        Program("BLEU as a reward, with gradient", reward, (logits, noise, sentences)),
        Program("words by a table, embedded", vocabulary, (sentences, weights, head)),
        Program("strings to buckets, embedded", buckets, (*names, weights)),
        Program("the ragged mean of words", ragged, (sentences, weights, head)),
        Program("a word error rate", error_rate, (logits, tf.constant(spoken, tf.int32))),
    ]

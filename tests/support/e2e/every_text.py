"""Cases of ops on strings: texts, numbers in texts, and what is serialized."""

from typing import Any

import tensorflow as tf

from tests.support.e2e.every_op import case, cases, raw_case
from tests.support.e2e.every_op import ints as _ints
from tests.support.e2e.every_sparse import sparse as _sparse


def words(x: tf.Tensor) -> tf.Tensor:
    """Texts such as "Word 3 "."""
    return tf.strings.join(["Word ", tf.strings.as_string(tf.cast(x, tf.int32)), " "])


def _numbers(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.as_string(x, precision=2)


cases(
    AsString=lambda x: tf.strings.as_string(x * 0.5, precision=3),
    StringToNumber=lambda x: tf.strings.to_number(_numbers(x)) * 2.0,
    StringLength=lambda x: tf.strings.length(words(x * 10.0)) + 1,
    StringJoin=lambda x: tf.strings.join([words(x), _numbers(x)], "-"),
    StringLower=lambda x: tf.strings.lower(words(x)),
    StringUpper=lambda x: tf.strings.upper(words(x)),
    StringStrip=lambda x: tf.strings.strip(words(x)),
    Substr=lambda x: tf.strings.substr(words(x), _ints(x), _ints(x) * 0 + 3),
    StringSplit=lambda x: tf.compat.v1.string_split(words(x)),
    StringSplitV2=lambda x: tf.strings.split(words(x)).to_tensor(),
    StringFormat=lambda x: tf.strings.format("{} and {}", [x, _ints(x)]),
    RegexReplace=lambda x: tf.raw_ops.RegexReplace(
        input=words(x), pattern=tf.strings.substr(words(x)[0], 0, 2), rewrite="a"
    ),
    RegexFullMatch=lambda x: tf.raw_ops.RegexFullMatch(input=words(x), pattern=words(x)[1]),
    StaticRegexReplace=lambda x: tf.strings.regex_replace(words(x), "[0-9]", "digit"),
    StaticRegexFullMatch=lambda x: tf.strings.regex_full_match(words(x), ".*3 "),
    StringToHashBucketFast=lambda x: tf.strings.to_hash_bucket_fast(words(x), 9) * 2,
    StringToHashBucketStrong=lambda x: tf.strings.to_hash_bucket_strong(words(x), 9, [1, 2]),
    StringNGrams=lambda x: tf.strings.ngrams(words(x), 2),
    ReduceJoin=lambda x: tf.strings.reduce_join(words(x), separator=","),
    UnsortedSegmentJoin=lambda x: tf.strings.unsorted_segment_join(words(x), _ints(x), 4),
    UnicodeDecode=lambda x: tf.strings.unicode_decode(words(x), "UTF-8").to_tensor() + 1,
    UnicodeDecodeWithOffsets=lambda x: (
        tf.strings.unicode_decode_with_offsets(words(x), "UTF-8")[1].values
    ),
    UnicodeEncode=lambda x: tf.strings.unicode_encode(_ints(x)[None] + 64, "UTF-8"),
    UnicodeScript=lambda x: tf.strings.unicode_script(_ints(x) + 64) * 2,
    UnicodeTranscode=lambda x: tf.strings.unicode_transcode(words(x), "UTF-8", "UTF-16-BE"),
    EncodeBase64=lambda x: tf.io.encode_base64(words(x)),
    DecodeBase64=lambda x: tf.io.decode_base64(tf.io.encode_base64(words(x))),
    DecodeRaw=lambda x: tf.io.decode_raw(words(x), tf.uint8)[0],
    DecodePaddedRaw=lambda x: tf.io.decode_raw(words(x), tf.int32, fixed_length=8) + 1,
    DecodeCompressed=lambda x: tf.io.decode_compressed(words(x)),
    DecodeCSV=lambda x: tf.io.decode_csv(tf.strings.join([_numbers(x), ",a"]), [0.0, "b"]),
    Fingerprint=lambda x: tf.fingerprint(words(x)),
    ShardedFilespec=lambda x: tf.raw_ops.ShardedFilespec(basename="a", num_shards=_ints(x)[1]),
    ParseTensor=lambda x: tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.float32) * 2.0,
    SerializeTensor=lambda x: tf.io.serialize_tensor(x * 2.0),
    SerializeSparse=lambda x: tf.io.serialize_sparse(_sparse(x)),
    SerializeManySparse=lambda x: tf.io.serialize_many_sparse(_sparse(x)),
    DeserializeManySparse=lambda x: tf.io.deserialize_many_sparse(
        tf.io.serialize_many_sparse(_sparse(x)), tf.float32, rank=2
    ),
)
raw_case("StringToHashBucket", string_tensor=words, num_buckets=9)
raw_case(
    "ShardedFilename", basename=lambda x: words(x)[0], shard=lambda x: _ints(x)[1], num_shards=5
)
raw_case(
    "DeserializeSparse",
    serialized_sparse=lambda x: tf.io.serialize_sparse(_sparse(x)),
    dtype=tf.float32,
)


def _json(x: tf.Tensor) -> tf.Tensor:
    values = tf.strings.reduce_join(_numbers(x), separator=",")
    start, end = '{"features": {"feature": {"a": {"floatList": {"value": [', "]}}}}}"
    return tf.strings.join([start, values, end])


def _example(x: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_json_example(_json(x))


cases(
    DecodeJSONExample=_example,
    ParseExampleV2=lambda x: tf.io.parse_single_example(
        _example(x), {"a": tf.io.FixedLenFeature([4], tf.float32)}
    ),
    ParseSequenceExampleV2=lambda x: tf.io.parse_sequence_example(
        _example(x)[None], {"a": tf.io.FixedLenFeature([4], tf.float32)}
    ),
    ParseSingleExample=lambda x: (
        tf.raw_ops.ParseSingleExample(
            serialized=_example(x),
            dense_defaults=[tf.zeros([4])],
            num_sparse=0,
            sparse_keys=[],
            dense_keys=["a"],
            sparse_types=[],
            dense_shapes=[[4]],
        ).dense_values[0]
        * 2.0
    ),
    DecodeProtoV2=lambda x: (
        tf.io.decode_proto(
            tf.io.encode_proto([[1]], [x[None, :1]], ["value"], "tensorflow.FloatList"),
            "tensorflow.FloatList",
            ["value"],
            [tf.float32],
        ).values
    ),
    EncodeProto=lambda x: tf.io.encode_proto(
        tf.ones([4, 1], tf.int32), [x[:, None]], ["value"], "tensorflow.FloatList"
    ),
)
case(
    "ParseExampleV2",
    lambda x: tf.io.parse_example(
        tf.stack([_example(x), _example(x + 1.0)]), {"a": tf.io.VarLenFeature(tf.float32)}
    ),
)


def _tokens(x: tf.Tensor) -> Any:
    tokens = tf.where(x > 2.0, _ints(x), 1)
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 1]], tokens, [2, 2])


case("EditDistance", lambda x: tf.edit_distance(_tokens(x), _tokens(x[::-1])) * 2.0)


def _logits(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(tf.reshape(tf.range(30.0), [5, 2, 3]) * tf.reduce_sum(x))


case(
    "CTCLoss",
    lambda x: tf.compat.v1.nn.ctc_loss(
        tf.SparseTensor([[0, 0], [1, 0]], [0, 1], [2, 1]), _logits(x), tf.constant([5, 5])
    ),
    gradient=True,
)
cases(
    CTCGreedyDecoder=lambda x: tf.nn.ctc_greedy_decoder(_logits(x), tf.constant([5, 4]))[0],
    CTCBeamSearchDecoder=lambda x: tf.nn.ctc_beam_search_decoder(
        _logits(x), tf.constant([5, 4]), beam_width=4
    )[0],
)

"""Cases of ops with effects: tables, queues, stages, files, prints and summaries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support.e2e.every_op import case, cases, raw_case
from tests.support.e2e.every_op import longs as _longs


def _static_table(_: Path) -> Any:
    initializer = tf.lookup.KeyValueTensorInitializer([1, 2, 3], [10.0, 20.0, 30.0], tf.int64)
    return tf.lookup.StaticHashTable(initializer, -1.0)


def _text_table(_: Path) -> Any:
    values = tf.constant([10, 30], tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(["1", "3"], values)
    return tf.lookup.StaticVocabularyTable(initializer, 2)


def _table(_: Path) -> Any:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
    table.insert(tf.constant([1, 7], tf.int64), tf.constant([10.0, 70.0]))
    return table


def _exported(table: Any) -> Any:
    keys, values = (t.numpy() for t in table.export())
    return sorted(zip(keys.tolist(), values.tolist(), strict=True))


_on_table: dict[str, Any] = {"setup": _table, "effects": _exported}


@case("LookupTableInsertV2", **_on_table)
def _insert(table: Any, x: tf.Tensor) -> None:
    table.insert(_longs(x), x * 2.0)


@case("LookupTableFindV2", setup=_static_table)
@case("LookupTableFindV2", **_on_table)
def _find(table: Any, x: tf.Tensor) -> tf.Tensor:
    return table.lookup(_longs(x)) * 2.0


case(
    "LookupTableFindV2",
    lambda t, x: t.lookup(tf.strings.as_string(_longs(x))) * 2,
    setup=_text_table,
)


@case("LookupTableSizeV2", **_on_table)
def _size(table: Any, x: tf.Tensor) -> Any:
    before = table.size()
    table.insert(_longs(x), x)
    return before, table.size() * 2


@case("LookupTableRemoveV2", **_on_table)
def _remove(table: Any, x: tf.Tensor) -> Any:
    table.remove(_longs(x)[:1])
    return table.size() * 2


@case("LookupTableExportV2", setup=_static_table)
def _export(table: Any, x: tf.Tensor) -> Any:
    keys, values = table.export()
    return tf.sort(keys) * 2, tf.reduce_sum(values) * x


@case("LookupTableImportV2", **_on_table)
def _import(table: Any, x: tf.Tensor) -> None:
    tf.raw_ops.LookupTableImportV2(
        table_handle=table.resource_handle, keys=_longs(x), values=x * 3.0
    )


def _queue(_: Path) -> Any:
    queue = tf.queue.FIFOQueue(100, [tf.float32], [[]])
    queue.enqueue_many([tf.range(40.0)])
    return queue


def _left(queue: Any) -> Any:
    return int(queue.size())


_on_queue: dict[str, Any] = {"setup": _queue, "effects": _left}
case("QueueEnqueueV2", lambda q, x: q.enqueue(x[1]), **_on_queue)
case("QueueEnqueueManyV2", lambda q, x: q.enqueue_many([x * 2.0]), **_on_queue)
case("QueueDequeueV2", lambda q, x: q.dequeue() * x, **_on_queue)
case("QueueDequeueManyV2", lambda q, x: q.dequeue_many(3) + x[0], **_on_queue)
case("QueueDequeueUpToV2", lambda q, x: q.dequeue_up_to(tf.cast(x[1], tf.int32)) * 2.0, **_on_queue)
case("QueueSizeV2", lambda q, x: (q.enqueue(x[0]), q.size() * 2)[1], **_on_queue)
case("QueueIsClosedV2", lambda q, x: tf.logical_or(q.is_closed(), x > 1.0), **_on_queue)


def _file(folder: Path) -> str:
    return str(folder / "file")


def _written(file: str) -> Any:
    return Path(file).read_text(encoding="utf-8") if Path(file).exists() else None


case(
    "WriteFile",
    lambda file, x: tf.io.write_file(file, tf.strings.as_string(x[0])),
    setup=_file,
    effects=_written,
)


@case("ReadFile", setup=_file, effects=_written)
def _read(file: str, x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.io.write_file(file, tf.strings.as_string(x[1]))]):
        return tf.io.read_file(file)


@case("MatchingFiles", setup=_file)
def _match(file: str, x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.io.write_file(file, tf.strings.as_string(x[1]))]):
        return tf.strings.length(tf.io.matching_files(file + "*"))


@case("SaveV2", setup=_file)
@case("RestoreV2", setup=_file)
def _saved(file: str, x: tf.Tensor) -> tf.Tensor:
    names = {"tensor_names": ["a"], "shape_and_slices": [""]}
    with tf.control_dependencies([tf.raw_ops.SaveV2(prefix=file, tensors=[x * 2.0], **names)]):
        return tf.raw_ops.RestoreV2(prefix=file, dtypes=[tf.float32], **names)[0]


@case("PrintV2", setup=_file, effects=_written)
def _print(file: str, x: tf.Tensor) -> tf.Tensor:
    tf.print("x is", x, "and", tf.reduce_sum(x), output_stream=f"file://{file}")
    return x * 2.0


case(
    "Print",
    lambda x: tf.raw_ops.Print(input=x * 2.0, data=[x], message="so: ") + 1.0,
    gradient=True,
)


class Summaries:
    """A writer of summaries, and what it has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = tf.summary.create_file_writer(str(folder))

    @property
    def handle(self) -> tf.Tensor:
        return self.writer._resource

    def written(self) -> Any:
        """Step, tag and value of each summary."""
        self.writer.flush()
        return [
            (event.step, value.tag, value.WhichOneof("value"), _content(value))
            for file in sorted(self.folder.iterdir())
            for event in tf.compat.v1.train.summary_iterator(str(file))
            for value in event.summary.value
        ]


def _content(value: Any) -> bytes:
    value.ClearField("tag")
    return bytes(value.SerializeToString(deterministic=True))


_on_writer: dict[str, Any] = {"setup": Summaries, "effects": lambda s: s.written()}


@case("WriteSummary", **_on_writer)
def _write_summary(summaries: Summaries, x: tf.Tensor) -> tf.Tensor:
    with summaries.writer.as_default():
        tf.summary.write("total", tf.reduce_sum(x), step=_longs(x)[0])
    return x * 2.0


def _writing(op: str, arguments: Callable[[tf.Tensor], dict[str, Any]]) -> None:
    def program(summaries: Summaries, x: tf.Tensor) -> tf.Tensor:
        common = {"writer": summaries.handle, "step": _longs(x)[0], "tag": "tag"}
        getattr(tf.raw_ops, op)(**common, **arguments(x))
        return x * 2.0

    case(op, program, **_on_writer)


_RED = tf.constant([255, 0, 0, 255], tf.uint8)
_writing("WriteScalarSummary", lambda x: {"value": x[1]})
_writing("WriteHistogramSummary", lambda x: {"values": x})
_writing("WriteImageSummary", lambda x: {"tensor": tf.reshape(x, [1, 2, 2, 1]), "bad_color": _RED})
_writing("WriteAudioSummary", lambda x: {"tensor": tf.sin(x)[None], "sample_rate": 8000.0})


@case("FlushSummaryWriter", **_on_writer)
def _flush(summaries: Summaries, x: tf.Tensor) -> tf.Tensor:
    tf.raw_ops.WriteScalarSummary(writer=summaries.handle, step=1, tag="tag", value=x[0])
    summaries.writer.flush()
    return x * 2.0


cases(
    ScalarSummary=lambda x: tf.raw_ops.ScalarSummary(tags="tag", values=x[0]),
    HistogramSummary=lambda x: tf.raw_ops.HistogramSummary(tag="tag", values=x),
)
raw_case("TensorSummaryV2", tag="tag", tensor=lambda x: x, serialized_summary_metadata="")
raw_case("ImageSummary", tag="tag", tensor=lambda x: tf.reshape(x, [1, 2, 2, 1]))
raw_case("AudioSummaryV2", tag="tag", tensor=lambda x: tf.sin(x)[None], sample_rate=8000.0)
raw_case(
    "MergeSummary",
    inputs=lambda x: [
        tf.raw_ops.ScalarSummary(tags="one", values=x[0]),
        tf.raw_ops.ScalarSummary(tags="two", values=x[1]),
    ],
)


@case("Stage")
def _stage(x: tf.Tensor) -> tf.Tensor:
    staged = tf.raw_ops.Stage(values=[x * 2.0], shared_name="every")
    with tf.control_dependencies([staged]):
        return tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="every")[0] + 1.0


@case("MapStage")
def _map_stage(x: tf.Tensor) -> tf.Tensor:
    staged = tf.raw_ops.MapStage(
        key=_longs(x)[0], indices=[0], values=[x * 2.0], dtypes=[tf.float32], shared_name="every"
    )
    with tf.control_dependencies([staged]):
        return tf.raw_ops.MapUnstage(
            key=_longs(x)[0], indices=[0], dtypes=[tf.float32], shared_name="every"
        )[0]


case(
    "ResourceCountUpTo",
    lambda v, x: v.count_up_to(100) * tf.cast(x, tf.int32),
    setup=lambda _: tf.Variable(3),
    effects=lambda v: v.numpy(),
)

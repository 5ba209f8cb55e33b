"""plugin/hostcall/_replay: values, damaged files, threads, processes and interrupts."""

import contextlib
import pathlib
import sqlite3
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hostcall._replay import calls, replayer, values
from hostcall._replay.calls import Raised, RecordingError, ReplayError, Returned
from hostcall._replay.recorder import Recorder
from hostcall._replay.replayer import RecordingReader, Replayer
from hostcall_runtime import _interception
from hostcall_runtime._interception import CallSite
from tests.support.errors import raising
from tests.support.executor_functions import doubled
from tests.support.threads import in_threads, meeting, running

SITE = CallSite("module:function", "function, called at file.py:1")


@contextlib.contextmanager
def recording(file: str) -> Iterator[Recorder]:
    recorder = Recorder(file, overwrite=False)
    yield recorder
    recorder.close()


def record(file: str, *numbers: float) -> None:
    with recording(file) as recorder:
        for number in numbers:
            recorder.call(SITE, doubled, [np.full(3, number)], {})


(NAN,) = struct.unpack("<d", bytes.fromhex("010000000000f87f"))
VALUES = [
    *(None, True, -(2**63), 2**64 - 1, -0.0, NAN, -NAN, float("-inf"), 5e-324, complex(1, -0.0)),
    *(b"\0\xff", "ü\udc80", [1, (2.5, [None])], (), np.float32(1.5), np.bool_(True)),
    *(np.str_("text"), np.bytes_(b"bytes"), np.zeros((0, 3), np.int8), np.array(7, ">i4")),
    *(np.array([b"a\0b", "ü"], object), np.array(["ab", ""]), np.array([1], ml_dtypes.bfloat16)),
    np.arange(6, dtype=np.uint8).view(ml_dtypes.int4)[::2],
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    data = calls.encode_record(Returned(values.encode(value)))
    outcome = calls.decode_outcome(data)
    assert isinstance(outcome, Returned)
    found = values.decode(outcome.value)
    assert type(found) is type(value)
    if isinstance(value, float):
        assert struct.pack("<d", found) == struct.pack("<d", value)
    if isinstance(value, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        if value.dtype != object:
            assert found.tobytes() == value.tobytes()
        assert isinstance(found, np.generic) or found.flags.writeable
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "builtins.object"),
        ({"a": 1}, "builtins.dict"),
        (2**64, "an integer of more than 64 bits"),
        (np.array([None, 1]), "an array of Python objects"),
        (np.zeros(2, "datetime64[s]"), r"an array of datetime64[s]"),
        ([1, [object()]], "builtins.object"),
    ],
)
def test_what_cannot_be_recorded(value: Any, what: str) -> None:
    encoded = values.encode(value)
    assert values.unknowns([encoded]) == [what]
    with pytest.raises(ValueError, match="which cannot be recorded"):
        values.decode(encoded)


BAD = [
    *(values.Array("<f4", (size,), [b"1234"]) for size in (3, -1)),
    *(values.Array(dtype, (1,), [bytes(8)]) for dtype in ("O", "V8", "ml_dtypes.finfo")),
    values.Array("ml_dtypes.__loader__", (1,), [bytes(8)]),
    values.Array("<f8", (2**62, 0, 2**62), []),
    values.Texts((2,), [b"a"], [True]),
    values.Texts((1,), [b"a"], []),
    values.Texts((1,), [b"\xff"], [True]),
]


@pytest.mark.parametrize("value", BAD, ids=str)
def test_arrays_that_contradict_themselves(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        values.decode(value)


def test_large_values_are_divided(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_PART", 1000)
    monkeypatch.setattr(calls, "PIECE", 700)
    numbers = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
    with recording(file) as recorder:
        recorder.call(SITE, lambda x: x[::-1], [numbers], {})
    replayer = Replayer(file)
    found = replayer.call(SITE, doubled, [numbers], {})
    np.testing.assert_array_equal(found, numbers[::-1])
    replayer.close(None)


def test_a_file_says_what_it_is(file: str) -> None:
    record(file, 1.0, 2.0)
    reader = RecordingReader(file)
    assert reader.complete
    assert [call.id for call in reader.calls] == [1, 2]
    assert list(reader.names.values()) == ["module:function"]
    reader.close()
    with sqlite3.connect(file) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        [(written_by,)] = database.execute("SELECT written_by FROM state")
    assert written_by.startswith("hostcall")


def edit(statement: str) -> Callable[[str], None]:
    def change(file: str) -> None:
        with sqlite3.connect(file) as database:
            database.execute(statement)
        database.close()

    return change


def cut(size: int) -> Callable[[str], None]:
    def change(file: str) -> None:
        path = pathlib.Path(file)
        path.write_bytes(path.read_bytes()[:size])

    return change


def overwrite(file: str) -> None:
    data = bytearray(pathlib.Path(file).read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    pathlib.Path(file).write_bytes(data)


DAMAGES: list[tuple[Callable[[str], object], str]] = [
    (lambda file: pathlib.Path(file).unlink(), "there is no recording"),
    (cut(0), "is not a recording: it is empty"),
    (cut(10), "is not a recording: it is another kind of file"),
    *((change, "is damaged") for change in (cut(4096), cut(16384), overwrite)),
    (lambda file: pathlib.Path(file).write_text("a,b\n1,2"), "another kind of file"),
    (edit("PRAGMA application_id = 0"), "a database of something else"),
    (edit("PRAGMA user_version = 2"), "of version 2, and this hostcall reads version 1"),
    (edit("DROP TABLE calls"), "its tables are not those of a recording"),
    (edit("DELETE FROM calls WHERE id = 1"), "2 calls were written, and 1 are there"),
    (edit("DELETE FROM state"), "is damaged"),
    *((edit(f"UPDATE calls SET {what}"), "is damaged") for what in ("began = 'x'", "callback = 9")),
    (edit("UPDATE calls SET ended = 100"), "is damaged: call 1 has changed"),
    (edit("UPDATE callbacks SET name = 'other:function'"), "is damaged: call 1 has changed"),
    (edit("UPDATE pieces SET data = zeroblob(8) WHERE part = 1"), "call 1 has changed"),
    (edit("DELETE FROM pieces WHERE part = 1"), "call 1 has changed"),
]


def replay(file: str, *numbers: float) -> Replayer:
    """Replay calls of these numbers, whose results are the recorded ones."""
    replayer = Replayer(file)
    for number in numbers:
        found = replayer.call(SITE, doubled, [np.full(3, number)], {})
        np.testing.assert_array_equal(found, np.full(3, 2 * number))
    return replayer


@pytest.mark.parametrize(("change", "said"), DAMAGES)
def test_files_that_are_damaged(change: Callable[[str], object], said: str, file: str) -> None:
    record(file, 1.0, 2.0)
    change(file)
    with pytest.raises(RecordingError) as error:
        replay(file, 1.0)
    assert said in str(error.value)


def test_arguments_that_are_damaged_are_not_shown(file: str) -> None:
    record(file, 1.0)
    edit("UPDATE pieces SET data = zeroblob(8) WHERE part = 0")(file)
    with pytest.raises(RecordingError, match="the arguments of call 1 have changed"):
        replay(file, 2.0)


def test_every_bit_of_a_file_counts(file: str) -> None:
    """Whatever bit is turned: the results are the recorded ones, or there is an error."""
    record(file, 1.0, 2.0)
    path = pathlib.Path(file)
    data = path.read_bytes()
    numbers = np.random.default_rng(0)
    for place in numbers.integers(0, len(data), 150):
        changed = bytearray(data)
        changed[place] ^= 1 << int(numbers.integers(8))
        path.write_bytes(changed)
        # A warning says that the recording is not complete.
        with contextlib.suppress(RecordingError, RuntimeWarning):
            replay(file, 1.0, 2.0).close(None)


def test_only_recordings_are_overwritten(file: str) -> None:
    pathlib.Path(file).write_text("my thesis")
    with pytest.raises(RecordingError, match="another kind of file"):
        Recorder(file, overwrite=True)
    assert pathlib.Path(file).read_text() == "my thesis"
    with pytest.raises(RecordingError, match="cannot be written"):
        Recorder(file + "/in/a/file", overwrite=False)


def test_no_module_is_imported_and_no_class_called_that_is_no_exception() -> None:
    for kind in ("antigravity:Error", "builtins:print", "os:system", "builtins:SystemExit", ":"):
        error = calls.decode(Raised(kind, "text", [values.encode("text")]))
        assert type(error).__name__ == "RecordedError"
    assert str(calls.decode(Raised("a.b:C.D", "text"))) == "a.b.C.D: text"


def test_a_full_disk_ends_the_recording_and_not_the_program(file: str) -> None:
    recorder = Recorder(file, overwrite=False)
    recorder.call(SITE, doubled, [np.full(3, 1.0)], {})
    recorder._writer._database.execute("PRAGMA max_page_count = 1")
    with pytest.warns(RuntimeWarning, match=r"full.*holds the 1 calls.*Recording ends here"):
        recorder.call(SITE, doubled, [np.zeros(100_000)], {})
    assert recorder.call(SITE, doubled, [np.full(3, 2.0)], {}).tolist() == [4.0] * 3
    with pytest.raises(RecordingError, match="full"):
        recorder.close()
    with pytest.warns(RuntimeWarning, match=r"was not ended.*holds the 1 calls"):
        replay(file, 1.0).close(None)


# Threads, processes and interrupts.

X = np.array([1.0, 2.0])
PURE = CallSite("module:pure", "pure", ordered=False)
ORDERED = CallSite("module:stateful", "stateful")


def refused(replayer: Replayer, site: CallSite, *args: Any) -> str:
    with pytest.raises(ReplayError) as error:
        replayer.call(site, np.negative, args, {})
    return str(error.value)


def test_calls_that_overlapped_come_in_any_order(file: str) -> None:
    meet = meeting(2)
    with recording(file) as recorder:
        for first in (1, 3):
            in_threads(2, lambda i, n=first: recorder.call(ORDERED, meet, [X + n + i], {}))  # type: ignore[misc]
    replayer = Replayer(file)
    for i in (2, 1, 4, 3):
        np.testing.assert_array_equal(replayer.call(ORDERED, np.abs, [X + i], {}), 2 * (X + i))
    replayer.close(None)
    replayer = Replayer(file)
    assert "come in another order" in refused(replayer, ORDERED, X + 3)


def test_a_call_is_found_behind_many_alike_of_another_op(file: str) -> None:
    first, second = (
        CallSite("module:pure", "pure", np.negative, node, ordered=False) for node in "ab"
    )
    with recording(file) as recorder:
        for _ in range(100):
            recorder.call(first, np.negative, [X], {})
        recorder.call(second, np.abs, [X], {})
    np.testing.assert_array_equal(Replayer(file).call(second, np.exp, [X], {}), X)


def test_functions_that_nothing_tells_apart_are_refused(file: str) -> None:
    both = threading.Barrier(2)

    def function(sign: int) -> Any:
        return lambda x: (both.wait(), sign * x)[1]

    functions = [function(1), function(-1)]
    sites = [CallSite("module:<lambda>", "a lambda", each, ordered=False) for each in functions]
    with recording(file) as recorder:
        in_threads(2, lambda i: recorder.call(sites[i], functions[i], [X], {}))
    replayer = Replayer(file)
    text = refused(replayer, CallSite("module:<lambda>", "a lambda", ordered=False), X)
    assert "calls 1 and 2 of it have these arguments" in text
    assert "hostcall.callback(..., name=...)" in text


def test_an_interrupt_is_no_result(file: str) -> None:
    with recording(file) as recorder, pytest.raises(KeyboardInterrupt):
        recorder.call(PURE, raising(KeyboardInterrupt()), [X], {})
    assert RecordingReader(file).calls == []


def test_a_call_that_has_not_ended_is_told_of(file: str) -> None:
    recorder = Recorder(file, overwrite=False)
    began, go_on = threading.Event(), threading.Event()
    results: list[Any] = []

    def wait(x: Any) -> Any:
        began.set()
        go_on.wait()
        return -x

    with running([lambda: results.append(recorder.call(PURE, wait, [X], {}))], go_on):
        began.wait()
        with pytest.warns(RuntimeWarning, match="1 call had not ended at the end"):
            recorder.close()
    np.testing.assert_array_equal(results, [-X])
    np.testing.assert_array_equal(recorder.call(PURE, np.negative, [X], {}), -X)
    assert RecordingReader(file).calls == []


def test_a_forked_process_does_not_replay(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(file) as recorder:
        recorder.call(PURE, np.negative, [X], {})
    replayer = Replayer(file)
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert "in a forked process" in refused(replayer, PURE, X)


def test_a_function_in_another_module_answers_where_it_is_the_only_one(file: str) -> None:
    with recording(file) as recorder:
        recorder.call(PURE, np.negative, [X], {})
    for name in ("other:pure", "pure"):
        replayer = Replayer(file)
        found = replayer.call(CallSite(name, "pure"), np.abs, [X], {})
        np.testing.assert_array_equal(found, -X)
    assert "no call of a function" in refused(Replayer(file), CallSite("module:other", "other"), X)


def test_threads_of_a_call_are_within_it(file: str) -> None:
    def inner() -> None:
        recorder.call(PURE, np.negative, [X], {})

    def outer(x: Any) -> Any:
        thread = threading.Thread(target=_interception.carried(inner))
        thread.start()
        thread.join()
        with contextlib.suppress(ValueError):
            _interception.carried(int)("no number")
        inner()
        return x

    with recording(file) as recorder:
        recorder.call(ORDERED, outer, [X], {})
        inner()
    reader = RecordingReader(file)
    assert [reader.names[call.callback] for call in reader.calls] == ["module:stateful", PURE.name]


# Files from elsewhere: small ones that would keep a reader busy, or ask more of it.


def said_of(file: str) -> str:
    with pytest.raises(RecordingError) as error:
        replay(file, 1.0)
    assert file in str(error.value)
    return str(error.value)


VIEW = "CREATE VIEW only_of AS SELECT 'module:function' AS name"
MORE = ["CREATE TABLE more (x)", "CREATE INDEX more ON calls (began)", VIEW.replace("only", "more")]


@pytest.mark.parametrize("statement", [f"DROP TABLE only_of; {VIEW}", *MORE])
def test_tables_are_those_of_a_recording_and_no_others(statement: str, file: str) -> None:
    record(file, 1.0)
    for part in statement.split("; "):
        edit(part)(file)
    assert "is damaged: its tables are not those of a recording" in said_of(file)


def test_a_query_ends_after_as_many_steps_as_the_file_may_need(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(file, *range(500))
    assert len(RecordingReader(file).calls) == 500
    monkeypatch.setattr(replayer, "_STEPS", 100)
    monkeypatch.setattr(replayer, "_STEPS_PER_BYTE", 0)
    monkeypatch.setattr(replayer, "_STEPS_ANYWAY", 2000)
    assert "is damaged: interrupted" in said_of(file)


def test_a_query_has_no_more_bytes_than_the_file(file: str) -> None:
    record(file, *range(500))
    reader = RecordingReader(file)
    reader._size = 5000
    expected = pytest.raises(RecordingError, match="more than a file of its size can hold")
    with expected, reader._reading():
        reader._list()


@pytest.mark.parametrize("version", [b"\2\2", b"\1\2", b"\0\0"])
def test_a_journal_of_another_kind_is_refused_before_sqlite_opens_the_file(
    version: bytes, file: str
) -> None:
    record(file, 1.0)
    path = pathlib.Path(file)
    data = path.read_bytes()
    path.write_bytes(data[:18] + version + data[20:])
    assert "hostcall did not write its journal" in said_of(file)
    assert not pathlib.Path(f"{file}-wal").exists()


def test_a_journal_that_names_other_files_is_refused(file: str) -> None:
    record(file, 1.0)
    journal = pathlib.Path(f"{file}-journal")
    journal.write_bytes(bytes(16))  # nothing that SQLite would use
    replay(file, 1.0).close(None)
    journal.write_bytes(bytes(16) + bytes.fromhex("d9d505f920a163d7"))
    assert "hostcall did not write its journal" in said_of(file)
    assert journal.exists()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_values_are_nested_up_to_a_limit() -> None:
    deepest = values.encode(nested(100))
    assert values.decode(deepest) == nested(100)
    values.check_depth([deepest, deepest])
    endless: list[Any] = []
    endless.append(endless)
    for value in nested(101), endless:
        unknown = values.unknowns([values.encode(value)])
        assert unknown == ["nested deeper than 100 lists in lists"]
    with pytest.raises(ValueError, match="nested deeper than 100 lists in lists"):
        values.check_depth([values.Plain(1), values.Items("list", [deepest])])


@pytest.mark.parametrize("kind", ["returned", "wrote", "raised", "arguments"])
def test_a_file_with_values_that_are_nested_deeper_is_damaged(kind: str) -> None:
    deep = values.Plain(1)
    for _ in range(101):
        deep = values.Items("list", [deep])  # type: ignore[assignment]
    outcomes = {
        "returned": Returned(deep),
        "wrote": calls.Wrote([deep]),
        "raised": Raised("builtins:ValueError", "text", [deep]),
    }
    if kind == "arguments":
        with pytest.raises(ValueError, match="nested deeper"):
            calls.decode_arguments(calls.encode_record([deep]))
        return
    with pytest.raises(ValueError, match="nested deeper"):
        calls.decode_outcome(calls.encode_record(outcomes[kind]))


def test_what_is_nested_too_deep_is_damage_when_it_is_replayed(file: str) -> None:
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch, recording(file) as recorder:
        patch.setattr(values, "_DEEPEST", 120)
        recorder.call(SITE, lambda x: nested(110), [np.full(3, 1.0)], {})
    assert "is damaged: a value is nested deeper than 100 lists in lists" in said_of(file)


def test_what_others_raise_for_a_file_is_damage(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record(file, 1.0)
    for error in (RecursionError("deep"), MemoryError("large"), OverflowError("wide")):
        monkeypatch.setattr(calls, "decode_outcome", raising(error))
        assert f"is damaged: {error}" in said_of(file)


@pytest.mark.parametrize(
    "value",
    [
        values.Array("<U0", (2**40,), []),
        values.Array("<f4", (1,) * 65, [bytes(4)]),
        values.Array("<f3", (1,), [bytes(3)]),
        values.Array("<U99999999999", (0,), []),
        values.Array("<U9999999999", (0,), []),
    ],
    ids=str,
)
def test_arrays_that_are_small_in_the_file_alone_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"dimensions|no bytes|no dtype"):
        values.decode(value)


class Lazy(types.ModuleType):
    """A module that does something when it is asked for a name, as importlib's lazy ones do."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


class Asked(metaclass=Meta):
    pass


def test_no_module_and_no_class_is_asked_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with_getattr = types.ModuleType("replay_with_getattr")
    with_getattr.__dict__["__getattr__"] = raising(AssertionError("asked"))
    with_getattr.__dict__["Asked"] = Asked
    with_getattr.__dict__["Error"] = type("Error", (Exception,), {"InnerError": InnerError})
    monkeypatch.setitem(sys.modules, "replay_lazy", Lazy("replay_lazy"))
    monkeypatch.setitem(sys.modules, "replay_with_getattr", with_getattr)
    monkeypatch.setitem(sys.modules, "replay_no_module", with_getattr.__dict__["Error"])
    for kind in (
        *("replay_lazy:Error", "replay_with_getattr:nothing", "replay_with_getattr:Asked.Error"),
        *("replay_with_getattr:Asked", "replay_no_module:InnerError"),
    ):
        assert type(calls.decode(Raised(kind, "text"))).__name__ == "RecordedError", kind
    assert type(calls.decode(Raised("replay_with_getattr:Error", "x"))).__name__ == "Error"
    assert type(calls.decode(Raised("replay_with_getattr:Error.InnerError", "x"))) is InnerError


class InnerError(ValueError):
    pass

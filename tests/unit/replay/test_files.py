"""plugin/hostcall/_replay: values, files, and what is wrong with them."""

from __future__ import annotations

import pathlib
import sqlite3
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hostcall._replay import calls, values
from hostcall._replay import replayer as replay_replayer
from hostcall._replay.calls import Raised, RecordingError, Returned
from hostcall._replay.recorder import Recorder
from hostcall._replay.replayer import Reader, Replayer
from hostcall_runtime._interception import Site

SITE = Site("module:function", "function, called at file.py:1")


def double(x: Any) -> Any:
    return 2 * x


def record(file: str, *numbers: float) -> None:
    recorder = Recorder(file, overwrite=False)
    for number in numbers:
        recorder.call(SITE, double, [np.full(3, number)], {})
    recorder.close()


VALUES = [
    None,
    True,
    -(2**63),
    2**64 - 1,
    -0.0,
    complex(1, -0.0),
    b"\0\xff",
    "ü\udc80",
    [1, (2.5, [None])],
    (),
    np.float32(1.5),
    np.bool_(True),
    np.str_("text"),
    np.bytes_(b"bytes"),
    np.zeros((0, 3), np.int8),
    np.array(7, ">i4"),
    np.array([b"a\0b", "ü"], object),
    np.array(["ab", ""]),
    np.arange(6, dtype=np.uint8).view(ml_dtypes.int4)[::2],
    np.array([1, 2], ml_dtypes.bfloat16),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    data = calls.encode_record(Returned(values.encode(value)))
    outcome = calls.decode_outcome(data)
    assert isinstance(outcome, Returned)
    found = values.decode(outcome.value)
    assert type(found) is type(value)
    if isinstance(value, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        if value.dtype != object:
            assert found.tobytes() == value.tobytes()
        assert isinstance(found, np.generic) or found.flags.writeable
    assert repr(found) == repr(value)


def test_the_bits_of_numbers_of_pythons() -> None:
    (nan,) = struct.unpack("<d", bytes.fromhex("010000000000f87f"))
    for number in (nan, -nan, float("-inf"), 5e-324):
        data = calls.encode_record(Returned(values.encode(number)))
        found = calls.decode_outcome(data)
        assert isinstance(found, Returned)
        again = values.decode(found.value)
        assert struct.pack("<d", again) == struct.pack("<d", number)


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


@pytest.mark.parametrize(
    "value",
    [
        values.Array("<f4", (3,), [b"1234"]),
        values.Array("<f4", (-1,), [b"1234"]),
        values.Array("O", (1,), [bytes(8)]),
        values.Array("ml_dtypes.finfo", (1,), [bytes(8)]),
        values.Array("ml_dtypes.__loader__", (1,), [bytes(8)]),
        values.Array("V8", (1,), [bytes(8)]),
        values.Array("<f8", (2**62, 0, 2**62), []),
        values.Texts((2,), [b"a"], [True]),
        values.Texts((1,), [b"a"], []),
        values.Texts((1,), [b"\xff"], [True]),
    ],
    ids=str,
)
def test_arrays_that_contradict_themselves(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        values.decode(value)


def test_large_values_are_divided(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_PART", 1000)
    monkeypatch.setattr(calls, "PIECE", 700)
    numbers = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
    recorder = Recorder(file, overwrite=False)
    recorder.call(SITE, lambda x: x[::-1], [numbers], {})
    recorder.close()
    replayer = Replayer(file)
    found = replayer.call(SITE, double, [numbers], {})
    np.testing.assert_array_equal(found, numbers[::-1])
    replayer.close(None)


def test_a_file_says_what_it_is(file: str) -> None:
    record(file, 1.0, 2.0)
    reader = Reader(file)
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: pathlib.Path(file).unlink(), "there is no recording"),
        (cut(0), "is no recording: it is empty"),
        (cut(10), "is no recording: it is another kind of file"),
        (cut(4096), "is damaged"),
        (cut(16384), "is damaged"),
        (overwrite, "is damaged"),
        (lambda file: pathlib.Path(file).write_text("a,b\n1,2"), "another kind of file"),
        (edit("PRAGMA application_id = 0"), "a database of something else"),
        (edit("PRAGMA user_version = 2"), "of version 2, and this hostcall reads version 1"),
        (edit("DROP TABLE calls"), "is damaged: no such table"),
        (edit("DELETE FROM calls WHERE id = 1"), "2 calls were written, and 1 are there"),
        (edit("DELETE FROM state"), "is damaged"),
        (edit("UPDATE calls SET began = 'x'"), "is damaged"),
        (edit("UPDATE calls SET callback = 9"), "is damaged"),
        (edit("UPDATE calls SET ended = 100"), "is damaged: call 1 has changed"),
        (edit("UPDATE callbacks SET name = 'other:function'"), "is damaged: call 1 has changed"),
        (edit("UPDATE pieces SET data = zeroblob(8) WHERE part = 1"), "call 1 has changed"),
        (edit("DELETE FROM pieces WHERE part = 1"), "call 1 has changed"),
    ],
)
def test_files_that_are_damaged(change: Callable[[str], None], said: str, file: str) -> None:
    record(file, 1.0, 2.0)
    change(file)

    def replay() -> None:
        replayer = Replayer(file)
        replayer.call(SITE, double, [np.full(3, 1.0)], {})

    with pytest.raises(RecordingError) as error:
        replay()
    assert said in str(error.value)


def test_arguments_that_are_damaged_are_not_shown(file: str) -> None:
    record(file, 1.0)
    edit("UPDATE pieces SET data = zeroblob(8) WHERE part = 0")(file)
    replayer = Replayer(file)
    with pytest.raises(RecordingError, match="the arguments of call 1 have changed"):
        replayer.call(SITE, double, [np.full(3, 2.0)], {})


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
        try:
            replayer = Replayer(file)
            for number in (1.0, 2.0):
                found = replayer.call(SITE, double, [np.full(3, number)], {})
                np.testing.assert_array_equal(found, np.full(3, 2 * number))
            replayer.close(None)
        except RecordingError:
            pass
        except RuntimeWarning:  # it is not complete
            pass


def test_only_recordings_are_overwritten(file: str) -> None:
    pathlib.Path(file).write_text("my thesis")
    with pytest.raises(RecordingError, match="another kind of file"):
        Recorder(file, overwrite=True)
    assert pathlib.Path(file).read_text() == "my thesis"
    with pytest.raises(RecordingError, match="cannot be written"):
        Recorder(file + "/in/a/file", overwrite=False)


def test_no_module_is_imported_and_no_class_called_that_is_no_exception(file: str) -> None:
    from hostcall._replay import calls

    for kind in ("antigravity:Error", "builtins:print", "os:system", "builtins:SystemExit", ":"):
        error = calls.decode(Raised(kind, "text", [values.encode("text")]))
        assert type(error).__name__ == "RecordedError"
    assert str(calls.decode(Raised("a.b:C.D", "text"))) == "a.b.C.D: text"


def test_a_full_disk_ends_the_recording_and_not_the_program(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(file, overwrite=False)
    recorder.call(SITE, double, [np.full(3, 1.0)], {})
    recorder._writer._database.execute("PRAGMA max_page_count = 1")
    large = np.zeros(100_000)
    with pytest.warns(RuntimeWarning, match=r"full.*holds the 1 calls.*Recording ends here"):
        recorder.call(SITE, double, [large], {})
    assert recorder.call(SITE, double, [np.full(3, 2.0)], {}).tolist() == [4.0] * 3
    with pytest.raises(RecordingError, match="full"):
        recorder.close()
    with pytest.warns(RuntimeWarning, match=r"was not ended.*holds the 1 calls"):
        replayer = Replayer(file)
    replayer.call(SITE, double, [np.full(3, 1.0)], {})
    replayer.close(None)


@pytest.mark.parametrize(
    ("recorded", "got", "said"),
    [
        ([b"abc"], [b"abd"], "Argument 0: recorded b'abc', got b'abd' (object)"),
        ([np.array([b"a", "b"], object)], [np.array([b"a", b"b"], object)], "element [1]"),
        ([np.zeros((2, 2))], [np.eye(2)], "element [0, 0]: recorded 0.0, got 1.0 (float64)"),
        ([1, np.zeros(0)], [1, np.zeros(0)], ""),
        ([1], [1, 2], "It was recorded with 1 argument, and has 2 arguments."),
        ([np.array(["a"])], [np.array(["b"])], "recorded 'a', got 'b'"),
    ],
)
def test_differences(recorded: list[Any], got: list[Any], said: str) -> None:
    encoded = [[values.encode_argument(value) for value in side] for side in (recorded, got)]
    difference = replay_replayer.first_difference(*encoded)
    assert said in difference if said else not difference

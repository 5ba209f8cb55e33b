"""The file of a recording: an SQLite database, in which each call is a transaction.

So each call that has ended is in the file, also if the process dies: the part of the system that
is to be trusted with that is SQLite. Values are MessagePack, which holds data and no code.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import msgspec

from hostcall._replay.values import Value

# Where the header of a database says what it is for ("hcrc"), and in which version.
APPLICATION = 0x68637263
VERSION = 1

# SQLite holds no more than 10^9 bytes in one field.
PIECE = 1 << 28

ARGUMENTS, OUTCOME = 0, 1

# `state` has one row. Where `only_of` has any, other functions are not recorded. `began` and
# `ended` are ticks of one clock, which moves at each event.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE state (written_by TEXT NOT NULL, complete INTEGER NOT NULL, calls INTEGER NOT NULL);
CREATE TABLE only_of (name TEXT NOT NULL);
CREATE TABLE callbacks (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE calls (
  id INTEGER PRIMARY KEY, callback INTEGER NOT NULL, description TEXT NOT NULL,
  node TEXT NOT NULL, function INTEGER NOT NULL, thread INTEGER NOT NULL, ordered INTEGER NOT NULL,
  began INTEGER NOT NULL, ended INTEGER NOT NULL, arguments BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE pieces (
  call INTEGER NOT NULL, part INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (call, part, number)
) WITHOUT ROWID;
"""


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """A call that returned.

    Attributes:
      value: what.
      has_handle: whether its tape residual was kept for a gradient.
    """

    value: Value
    has_handle: bool = False


class Wrote(msgspec.Struct, frozen=True, tag="wrote"):
    """A call that wrote its results into the arrays that it was given for them."""

    results: list[Value]


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """A call that raised an exception.

    Attributes:
      kind: `module:qualname` of its class.
      text: of the exception.
      args: what it was made of, where all of that can be recorded.
    """

    kind: str
    text: str
    args: list[Value] | None = None


Outcome = Returned | Wrote | Raised


class Call(msgspec.Struct):
    """A row of `calls`; `digest` is of the arguments."""

    id: int
    callback: int
    description: str
    node: str
    function: int
    thread: int
    ordered: bool
    began: int
    ended: int
    digest: bytes
    checksum: int


_encoder = msgspec.msgpack.Encoder()
_arguments = msgspec.msgpack.Decoder(list[Value])
_outcome = msgspec.msgpack.Decoder(Outcome)


def encode(value: Any) -> bytes:
    """Arguments, which are a list of values, or an outcome."""
    return _encoder.encode(value)


def decode_arguments(data: bytes) -> list[Value]:
    """The arguments of a call; raises msgspec.DecodeError for what is none."""
    return _arguments.decode(data)


def decode_outcome(data: bytes) -> Outcome:
    """What became of a call; raises msgspec.DecodeError for what is none."""
    outcome: Outcome = _outcome.decode(data)
    return outcome


def digest_of(arguments: bytes) -> bytes:
    """Equal where encoded arguments are."""
    return hashlib.blake2b(arguments, digest_size=16).digest()


def checksum_of(call: Call, name: str, outcome: bytes) -> int:
    """What tells that a call was read as it was written, apart from its arguments."""
    place = (call.id, name, call.description, call.node, call.function, call.thread)
    when = (bool(call.ordered), call.began, call.ended, call.digest)
    return zlib.crc32(outcome, zlib.crc32(repr((place, when)).encode()))

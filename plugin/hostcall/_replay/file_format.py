"""The file of a recording: an SQLite database, in which each call is a transaction.

So each call that has ended is in the file, even if the process dies: SQLite guarantees it. Values
are encoded as MessagePack, which holds data and no code.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable

import msgspec

from hostcall._replay.values import Value

# The application id ("hcrc") and the version in the database's header.
APPLICATION = 0x68637263
VERSION = 1

# SQLite holds no more than 10^9 bytes in one field.
PIECE = 1 << 28

ARGUMENTS, OUTCOME = 0, 1

# `state` has one row. If `only_of` has rows, other functions are not recorded. `began` and `ended`
# are ticks of one clock, which advances with each event.
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
      value: the return value, without the handle.
      has_handle: whether its tape residual was kept for a gradient.
    """

    value: Value
    has_handle: bool = False


class Wrote(msgspec.Struct, frozen=True, tag="wrote"):
    """A call that wrote its results into the arrays of `out`."""

    results: list[Value]


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """A call that raised an exception.

    Attributes:
      kind: `module:qualname` of its class.
      text: the exception's text.
      args: the exception's arguments, if all of them can be recorded.
    """

    kind: str
    text: str
    args: list[Value] | None = None


Outcome = Returned | Wrote | Raised


class Call(msgspec.Struct):
    """A row of `calls`; `digest` is the digest of the arguments."""

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


# For the arguments of a call (a list of values) and its outcome. For other data, those that decode
# raise msgspec.DecodeError.
encode = msgspec.msgpack.Encoder().encode
decode_arguments: Callable[[bytes], list[Value]] = msgspec.msgpack.Decoder(list[Value]).decode
decode_outcome: Callable[[bytes], Outcome] = msgspec.msgpack.Decoder(Outcome).decode


def digest_of(arguments: bytes) -> bytes:
    """Return a digest that is equal for equal encoded arguments."""
    return hashlib.blake2b(arguments, digest_size=16).digest()


def checksum_of(call: Call, name: str, outcome: bytes) -> int:
    """Return the checksum of a call and its outcome; the digest stands for the arguments."""
    place = (call.id, name, call.description, call.node, call.function, call.thread)
    when = (bool(call.ordered), call.began, call.ended, call.digest)
    return zlib.crc32(outcome, zlib.crc32(repr((place, when)).encode()))

"""Functions that are read as objects and written back, which must change no byte of them."""

from typing import Any

from hostcall._tf.graph import protos
from hostcall._tf.graph.program import ProgramModel
from hostcall._tf.types import FunctionDef, FunctionDefLibrary


def written_back(function: FunctionDef) -> FunctionDef:
    """Read a copy of a function, and write all of it anew."""
    (read,) = ProgramModel([protos.copy_of(function)]).values()
    for node in read.nodes:
        node.operands, node.controls = node.operands, node.controls
    _ = read.results, read.awaited
    return read.write()


def check(library: FunctionDefLibrary) -> None:
    """Check that functions are written as they were read, byte for byte."""
    for function in library.function:
        assert in_bytes(written_back(function)) == in_bytes(function), function.signature.name


def in_bytes(function: Any) -> bytes:
    return bytes(function.SerializeToString(deterministic=True))

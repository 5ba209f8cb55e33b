"""hostcall._saved.server_programs: what SavedModels have for servers without Python."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import saved_model_pb2

import hostcall
from hostcall._compiler.semantics import failures
from hostcall._tf.graph import attributes, op_kinds
from hostcall._tf.graph import function_defs as defs
from hostcall._tools.cli import rewrite_saved_model
from tests.support.exported import failing
from tests.support.exported.exported import F3, I


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    hostcall.configure(semantics="graph", functions="taken")


def save(path: Path, function: Callable[..., Any], *specs: Any, compiled: bool = True) -> None:
    module = tf.Module()
    module.function = tf.function(function, specs, jit_compile=compiled)
    tf.saved_model.save(module, str(path))


def read(path: Path) -> Any:
    model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    return model.meta_graphs[0].graph_def


def notes(path: Path) -> tuple[list[Any], list[str]]:
    """The programs in a file, and the reasons for none."""
    nodes = [node for function in read(path).library.function for node in function.node_def]
    found = {
        name: [node.attr[name].s for node in nodes if name in node.attr]
        for name in (attributes.PROGRAM, attributes.UNCOMPILED)
    }
    programs = [*map(function_pb2.FunctionDefLibrary.FromString, found[attributes.PROGRAM])]
    return programs, [reason.decode() for reason in found[attributes.UNCOMPILED]]


def errors_in(program: Any) -> list[str]:
    tokens = [node.attr["token"].s.decode() for node in defs.all_nodes(program, {"PyFunc"})]
    return [token for token in tokens if token.startswith("hostcall:errors:")]


@pytest.mark.parametrize("name", failing.FAILING)
def test_programs_hold_all_that_they_call_and_only_ops_of_tensorflow(
    name: str, tmp_path: Path
) -> None:
    case = failing.FAILING[name]
    save(tmp_path, case.function, *case.specs)
    (program,), reasons = notes(tmp_path)
    assert reasons == []
    functions = defs.by_name(program)
    for node in defs.all_nodes(program):
        assert not node.op.startswith("Hostcall")
        assert {*defs.called_functions(node, functions)} <= functions.keys()
        assert op_kinds.op_def_or_none(node.op) is not None or node.op in functions
    (errors,) = errors_in(program)[:1]
    assert f"{case.op} at {case.place})" in errors
    assert read(tmp_path).library.function[0].signature.name not in functions


def test_the_file_is_that_of_the_function(tmp_path: Path) -> None:
    """It has the same arguments and results, and its calls have the names of the file."""
    case = failing.FAILING["in_loop"]
    save(tmp_path, case.function, *case.specs)
    (program,), _ = notes(tmp_path)
    library = read(tmp_path).library
    (function,) = (f for f in library.function if "__inference_in_loop" in f.signature.name)
    entry = program.function[0].signature
    for own, others in (
        (entry.input_arg, function.signature.input_arg),
        (entry.output_arg, function.signature.output_arg),
    ):
        assert [arg.type for arg in own] == [arg.type for arg in others]
    (note,) = (
        node.attr["token"].s
        for node in defs.all_nodes(program, {"PyFunc"})
        if b"user_code:note" in node.attr["token"].s
    )
    assert note in {node.attr["token"].s for node in defs.all_nodes(library, {"PyFunc"})}


def plain(x: Any) -> Any:
    return failing.pure(x) + 1.0


def with_check(x: Any, i: Any) -> Any:
    return tf.gather(x, i)


def before_loop(x: Any, i: Any) -> Any:
    x += tf.gather(x, i)
    for _ in tf.range(3):
        failing.note(x)
    return x


def before_pure_loop(x: Any, i: Any) -> Any:
    x += tf.gather(x, i)
    for _ in tf.range(3):
        x = failing.pure(x)
    return x


def singular(x: Any) -> Any:
    return failing.pure(x), tf.linalg.inv(tf.linalg.diag(x))


def clipped(x: Any) -> Any:
    return failing.pure(x), tf.raw_ops.SeluGrad(gradients=x, outputs=x)


@pytest.mark.parametrize(
    ("function", "specs", "settings", "has_program", "reason"),
    [
        (plain, [F3], {}, False, ""),
        (with_check, [F3, I], {}, False, ""),
        (with_check, [F3, I], {"functions": "all"}, True, ""),
        (failing.gather, [F3, I], {"semantics": "xla"}, False, ""),
        (failing.of_values, [F3], {}, True, ""),
        (failing.of_values, [F3], {"semantics": "xla"}, False, ""),
        (clipped, [F3], {"semantics": "xla"}, True, ""),
        (singular, [F3], {}, False, "op 'MatrixInverse' (MatrixInverse): XLA computes something"),
        (singular, [F3], {"semantics": "xla"}, False, ""),
        (before_loop, [F3, I], {}, False, "it checks values before a function, a loop"),
        (before_pure_loop, [F3, I], {}, True, ""),
    ],
)
def test_what_is_written(
    function: Any,
    specs: list[Any],
    settings: dict[str, Any],
    has_program: bool,
    reason: str,
    tmp_path: Path,
) -> None:
    hostcall.configure(**settings)
    save(tmp_path, function, *specs)
    programs, reasons = notes(tmp_path)
    assert len(programs) == has_program
    assert len(reasons) == bool(reason)
    assert all(reason in found for found in reasons)
    if settings.get("semantics") == "xla":
        assert not any(map(errors_in, programs))


def test_functions_that_are_not_compiled_have_none(tmp_path: Path) -> None:
    save(tmp_path, failing.gather, F3, I, compiled=False)
    assert notes(tmp_path) == ([], [])


def test_a_function_within_a_compiled_function_is_part_of_its_program(tmp_path: Path) -> None:
    inner = tf.function(failing.gather, jit_compile=True)
    save(tmp_path, lambda x, i: inner(x, i) + inner(x, i // 2), F3, I)
    (program,), _ = notes(tmp_path)
    assert len(program.function) == 2


def test_numbers_that_the_custom_call_does_not_take(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        quotient = tf.cast(6, tf.int8) // tf.cast(x, tf.int8)
        return failing.pure(x), quotient

    save(tmp_path, function, F3)
    (program,), _ = notes(tmp_path)
    (node,) = (
        node
        for node in defs.all_nodes(program, {"PyFuncStateless"})
        if node.attr["token"].s == b"hostcall:any:equal"
    )
    assert [*node.attr["Tin"].list.type] == [defs.INT64] * 2


def test_a_process_with_hostcall_makes_its_own(tmp_path: Path) -> None:
    save(tmp_path, failing.gather, F3, I)
    loaded = tf.saved_model.load(str(tmp_path))
    (traced,) = loaded.function.concrete_functions
    graph_def = traced.graph.as_graph_def()
    assert b"_hostcall_program" not in graph_def.SerializeToString()
    tf.saved_model.save(loaded, str(tmp_path / "again"))
    (program,), _ = notes(tmp_path / "again")
    assert errors_in(program)


def test_a_rewritten_model_has_none(tmp_path: Path) -> None:
    save(tmp_path / "model", failing.gather, F3, I)
    rewrite_saved_model(tmp_path / "model", tmp_path / "rewritten", "partition")
    assert notes(tmp_path / "rewritten") == ([], [])


def test_stock_tensorflow_loads_the_model(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """And keeps the program, which is as good as before, in what it saves."""
    save(tmp_path / "model", failing.before_pure_calls, F3, I)
    before = notes(tmp_path / "model")
    script = f"""
import tensorflow as tf
loaded = tf.saved_model.load({str(tmp_path / "model")!r})
tf.saved_model.save(loaded, {str(tmp_path / "again")!r})
"""
    run_python(script)
    assert notes(tmp_path / "again") == before


def test_a_program_that_cannot_be_made_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(failures, "add", fail)
    save(tmp_path, failing.gather, F3, I)
    assert notes(tmp_path) == ([], ["too deep"])

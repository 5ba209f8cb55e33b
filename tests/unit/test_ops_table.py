"""docs/ops.md says what becomes of the ops that XLA has no kernels for."""

from __future__ import annotations

import pytest
import tensorflow as tf

from hostcall._tf import op_kinds
from tests.support.e2e import every_class, every_shapes, table
from tests.support.e2e.every_class import BOUNDARY, CANNOT_BE, Class
from tests.support.versions import is_older_than


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


@pytest.mark.skipif(
    is_older_than("2.21") or not is_older_than("2.22"), reason="the page is about 2.21"
)
def test_the_page_is_up_to_date() -> None:
    written = table.PAGE.read_text(encoding="utf-8")
    assert written == table.text(), "run: .venv/bin/python -m tests.support.e2e.table"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Eig", Class(every_class.OF_NUMBERS, every_class.NUMBERS)),
        ("ResizeArea", Class(every_class.OF_NUMBERS, every_class.NUMBERS)),
        ("UniqueWithCounts", Class(BOUNDARY, every_class.DEPENDS)),
        ("StringLength", Class(BOUNDARY, every_class.HANDLES[tf.string])),
        ("LookupTableFindV2", Class(BOUNDARY, every_class.HANDLES[tf.resource])),
        ("BatchDatasetV2", Class(BOUNDARY, every_class.HANDLES[tf.variant])),
        ("MapDataset", Class(BOUNDARY, every_class.FUNCTIONS)),
        ("StageClear", Class(BOUNDARY, every_class.EFFECT)),
        ("_FusedMatMul", Class(CANNOT_BE, every_class.MADE_LATER)),
        ("Assign", Class(CANNOT_BE, every_class.REFERENCES)),
        ("Enter", Class(CANNOT_BE, every_class.FRAMES)),
        ("Placeholder", Class(CANNOT_BE, every_class.FED)),
        ("TopK", Class(CANNOT_BE, every_class.REMOVED)),
    ],
)
def test_the_class_follows_from_the_definition(op: str, expected: Class) -> None:
    assert every_class.classify(op_kinds.op_def(op)) == expected


def test_ops_without_kernels_are_found() -> None:
    found = {definition.name for definition in every_class.ops_without_kernel()}
    assert {"Eig", "StringLength", "PrintV2"} <= found
    assert not found & {"AddV2", "MatMul", "EagerPyFunc", "TPUExecute"}


@pytest.mark.skipif(is_older_than("2.20"), reason="older ones lack dtypes that the page names")
def test_dtypes_without_kernels_are_found() -> None:
    gaps = every_class.dtype_gaps()
    assert "complex64" in gaps["MatrixInverse", "T"]
    assert ("AddV2", "T") not in gaps


@pytest.mark.parametrize(
    ("op", "known"), [("Eig", True), ("UniqueWithCounts", False), ("BlockLSTM", None)]
)
def test_shape_functions_are_asked(op: str, known: bool | None) -> None:
    assert every_shapes.are_known(op_kinds.op_def(op)) is known

"""function_names: what names of functions tell, and digests in them."""

from __future__ import annotations

from typing import Any

import pytest

from hostcall._tf import function_defs, protos, token_registry


def function(name: str, *ops: str) -> Any:
    made = protos.function_pb2.FunctionDef()
    made.signature.name = name
    for op in ops:
        made.node_def.add(name=op, op=op)
    return made


def test_a_digest_is_of_the_contents_in_any_order() -> None:
    f, g = function("f", "Add"), function("g", "Mul")
    digest = function_defs.of_contents([f, g])
    assert digest == function_defs.of_contents([g, f])
    assert digest != function_defs.of_contents([f])
    assert digest != function_defs.of_contents([f, function("g", "Sub")])


def test_names_tell_the_same_with_a_digest() -> None:
    digest = function_defs.of_contents([function("f")])
    name = f"__inference_f_12{digest}__partitioned__cluster_0"
    assert function_defs.plain(f"__inference_f_12{digest}") == "f"
    assert function_defs.plain(name) == "f"
    assert function_defs.without_number(name) == "f__partitioned__cluster_0"
    assert function_defs.without_digests(name) == "__inference_f_12__partitioned__cluster_0"


def test_digests_are_the_same_in_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(nonce: str) -> str:
        monkeypatch.setattr(token_registry, "_nonce", nonce)
        called = function("f", "PyFunc")
        called.node_def[0].attr["token"].s = f"pyfunc_3_{nonce}".encode()
        return function_defs.of_contents([called])

    assert digest("00112233") == digest("44556677")

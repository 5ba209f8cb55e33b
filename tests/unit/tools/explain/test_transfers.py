"""hostcall.explain: what crosses between a device and the host."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tools.explain.facts import FunctionFacts
from tests.support.helpers import assert_says, called, jitted
from tests.support.tpu import compile_for_tpus

X = tf.TensorSpec([256], tf.float32)
TPU = "/device:TPU:0"


@pytest.fixture(autouse=True)
def _tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_for_tpus(monkeypatch)


def host(x: Any) -> Any:
    return called(np.sort, x)


def explained(program: Any, *args: Any, device: str = TPU) -> Any:
    function = jitted(program)
    with tf.device(device):
        return hostcall.explain(function, *(args or (X,)))


def crossing(function: FunctionFacts) -> list[tuple[str, str, str, str, int | None]]:
    return [(t.value, t.to, t.what.dtype, t.what.shape, t.what.nbytes) for t in function.transfers]


def test_each_value_crosses_once() -> None:
    def program(x: Any) -> Any:
        y = tf.sin(x)
        first, second = host(y), host(y)
        return first + y, second + first

    explanation = explained(program)
    assert explanation.functions[0].device.endswith(TPU)
    assert crossing(explanation.functions[0]) == [
        ("Sin:y:0", "host", "float32", "(256,)", 1024),
        ("PyFunc:output:0", "device", "float32", "(256,)", 1024),
        ("PyFunc_1:output:0", "device", "float32", "(256,)", 1024),
    ]


def test_arguments_and_results_cross_too_but_for_strings_and_constants() -> None:
    explanation = explained(lambda x: tf.numpy_function(np.unique, [x], x.dtype))
    x = ("x", "host", "float32", "(256,)", 1024)
    unknown = ("PyFunc:output:0", "device", "float32", "<unknown>", None)
    assert crossing(explanation.functions[0]) == [x, unknown]

    def program(x: Any) -> Any:
        text = tf.numpy_function(lambda v, k: b"text", [x, np.float32(3.0)], tf.string)
        return x + 1.0, text

    assert crossing(explained(program).functions[0]) == [x]


def test_on_the_cpu_nothing_does() -> None:
    program = lambda x: tf.numpy_function(np.unique, [x], x.dtype)  # noqa: E731
    for device in ("", "/device:CPU:0"):
        [function] = explained(program, device=device).functions
        assert (function.mode, function.device, function.transfers) == ("partitioned", "", ())


def test_it_says_why_and_where() -> None:
    explanation = explained(host)
    [op] = explanation.script_ops
    assert op.route == "partition"
    assert "TPU:0 cannot call the host" in op.reason
    assert explanation.headline == "0 compiled clusters on TPU:0 and 1 script op on the host"


def test_the_table_and_the_page_show_it() -> None:
    explanation = explained(lambda x: host(tf.sin(x)) + 1.0)
    for shown in (str(explanation), explanation.to_html()):
        assert_says(shown, "what one call copies between TPU:0 and the host", "Sin:y:0", "1.0 KiB")
    transfers = explanation.to_dict()["functions"][0]["transfers"]
    assert [transfer["to"] for transfer in transfers] == ["host", "device"]

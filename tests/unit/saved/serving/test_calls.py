"""hostcall._saved.serving.session: what a worker keeps."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

import hostcall
from hostcall._ops import tape_residuals
from hostcall._saved.serving import session
from hostcall._saved.serving.session import CallError
from hostcall_runtime._serving_wire import ArrayFrame, CallFrame
from tests.support.serving.tokens import FUNCTIONS, token

X = np.array([1.0, 2.0, 3.0], np.float32)
FORWARD = token("double", kind="eager", differentiable=True, orders=1, recorded=True)
GRADIENT = "hostcall:1:" + json.dumps(
    {
        "id": "pyfunc_1_00000000",
        "kind": "gradient",
        "inputs": 3,
        "outputs": {"list": [{"spec": ["float32", [3]]}]},
        "differentiable": True,
        "of": json.loads(FORWARD.removeprefix("hostcall:1:")),
        "targets": [0],
        "sources": [0],
    }
)


@pytest.fixture(autouse=True)
def allowed() -> Iterator[None]:
    hostcall.allow(FUNCTIONS)
    yield
    session._handles.clear()


def forward() -> np.int64:
    call = CallFrame("EagerPyFunc", FORWARD, [ArrayFrame(1, (3,))], [1, 9])
    result, handle = session.run(call, [X.copy()])
    np.testing.assert_array_equal(result, X * 2)
    return np.int64(handle)


def gradient(handle: np.int64) -> list[float]:
    places = [ArrayFrame(9, ()), ArrayFrame(1, (3,)), ArrayFrame(1, (3,))]
    call = CallFrame("EagerPyFunc", GRADIENT, places, [1, 9])
    ones = np.ones(3, np.float32)
    return [*map(float, session.run(call, [np.array(handle), ones, X.copy()])[0])]


def test_a_gradient_finds_what_its_call_has_kept() -> None:
    first, second = forward(), forward()
    assert gradient(second) == gradient(first) == [2, 2, 2]
    with pytest.raises(CallError, match="is not kept any more") as raised:
        gradient(first)
    assert raised.value.code == 2


def test_unwanted_gradients_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_RESIDUALS", 3)
    handles = [int(forward()) for _ in range(10)]
    kept = [tape_residuals.spec_of(handle) is not None for handle in handles]
    assert kept == [False] * 7 + [True] * 3
    for handle in handles[7:]:
        gradient(np.int64(handle))

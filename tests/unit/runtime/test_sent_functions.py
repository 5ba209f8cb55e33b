"""hostcall_runtime._processes: how another process finds the functions that it is sent."""

import pickle
from typing import Any

import numpy as np

import hostcall
from hostcall_runtime._keyword_call import KeywordCall
from hostcall_runtime._processes import sendable
from tests.support import executor_functions as functions


@hostcall.callback(result=lambda x, **_: x)
def decorated(x: Any, factor: Any = 2) -> Any:
    return x * factor


class Decorated:
    @hostcall.callback(result=lambda x: x)
    def method(self, x: Any) -> Any:
        return x + 1


def test_functions_of_modules_and_those_without_a_name_go_as_they_are() -> None:
    for function in (functions.doubled, np.sin, len, KeywordCall(functions.scaled, ("factor",))):
        assert sendable(function) is function
        assert pickle.loads(pickle.dumps(function)) == function
    local = lambda x: x  # noqa: E731
    assert sendable(local) is local


def test_the_function_of_a_decorated_callback_is_found_by_its_name() -> None:
    sent = pickle.loads(pickle.dumps(sendable(decorated.__hostcall_function__)))
    assert sent(3) == 6
    assert sent.__name__ == "decorated"


def test_the_method_of_a_decorated_callback_is_found_with_its_object() -> None:
    method = Decorated().method.__hostcall_function__
    sent = pickle.loads(pickle.dumps(sendable(method)))
    assert sent(1) == 2
    assert sent.func.name == "Decorated.method"


def test_keywords_go_along() -> None:
    call = KeywordCall(decorated.__hostcall_function__, ("factor",))
    assert pickle.loads(pickle.dumps(sendable(call)))(3, 5) == 15

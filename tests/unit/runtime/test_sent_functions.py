"""hostcall_runtime._processes: how another process finds the functions that it is sent."""

import pickle
from typing import Any

import numpy as np

import hostcall
from hostcall_runtime import _processes
from hostcall_runtime._keyword_call import KeywordCall
from hostcall_runtime._processes import sendable
from tests.support import executor_functions as functions
from tests.support.threads import in_threads, switching_often


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


def test_first_calls_of_several_threads_send_the_same_function() -> None:
    with switching_often():
        for _ in range(20):
            _processes._run_once.cache_clear()
            sent: list[Any] = []
            in_threads(4, lambda _, s=sent: s.append(pickle.dumps(_processes._run_once())))  # type: ignore[misc]
            assert len(set(sent)) == 1
    assert pickle.loads(sent[0]).__name__ == _processes.run_once_on_dask.__name__

"""hostcall_runtime._processes: what a worker of Dask's is sent."""

from __future__ import annotations

import pickle
import threading
from typing import Any

from hostcall_runtime import _processes
from tests.support.threads import PATIENCE, in_threads, switching_often


def test_first_calls_of_several_threads_send_the_same_function() -> None:
    with switching_often():
        for _ in range(20):
            _processes._packed_once.cache_clear()
            together = threading.Barrier(4)
            sent: list[Any] = []

            def send(_: int, together: Any = together, sent: Any = sent) -> None:
                together.wait(PATIENCE)
                sent.append(pickle.dumps(_processes._run_once()))

            in_threads(4, send)
            assert len(set(sent)) == 1
    assert pickle.loads(sent[0]).__name__ == _processes.run_once_on_dask.__name__

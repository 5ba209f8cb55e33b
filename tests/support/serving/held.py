"""Calls that last until a test lets them end."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.serving.tokens import token

HOLD = token("hold", ["int32"], 2)


@contextlib.contextmanager
def held(folder: Path, call: Callable[[Any, Any], Any]) -> Iterator[Future[Any]]:
    """A call of `functions.hold` on a thread, from when it has begun to when the block ends.

    Two FIFOs in the folder are the arguments of `call`.
    """
    number = len([*folder.iterdir()])
    begun, release = (str(folder / f"{name}{number}") for name in ("begun", "release"))
    for path in (begun, release):
        os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call, *[np.array(path.encode(), object) for path in (begun, release)])
        Path(begun).read_bytes()
        try:
            yield future
        finally:
            Path(release).write_bytes(b"")

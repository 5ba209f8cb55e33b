"""Calls that last until a test lets them end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.serving.tokens import token

HOLD = token("hold", ["int32"], 2)


class Held:
    """A call of `functions.hold` on a thread, from when it has begun to when the block ends.

    Two FIFOs in the folder are the arguments of `call`, which returns the `result`.
    """

    def __init__(self, folder: Path, call: Callable[[Any, Any], Any]) -> None:
        number = len([*folder.iterdir()])
        self._paths = [str(folder / f"{name}{number}") for name in ("begun", "release")]
        self._texts = [np.array(path.encode(), object) for path in self._paths]
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.result: Any = None

    def __enter__(self) -> Held:
        for path in self._paths:
            os.mkfifo(path)
        self._thread.start()
        with open(self._paths[0], "rb") as begun:
            begun.read()
        return self

    def __exit__(self, *_: object) -> None:
        with open(self._paths[1], "wb"):
            pass
        self._thread.join(60)

    def _run(self, call: Callable[[Any, Any], Any]) -> None:
        self.result = call(*self._texts)

"""How much of a call is recorded for gradients."""

from __future__ import annotations

import enum


class Recording(enum.IntEnum):
    """Whether a compiled program can ask for the gradient of a py_function's call."""

    NO = 0
    # Within the run of the program.
    RUN = 1
    # After it: the handle of the tape residual is a result of the program.
    ESCAPING = 2
    # The same of a program that is a cluster: others of its function ask any number of times.
    CLUSTER = 3

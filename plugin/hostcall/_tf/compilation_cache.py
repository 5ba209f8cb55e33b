"""TensorFlow's cache of compiled programs in a directory, which outlive the process there."""

from __future__ import annotations

import os
from pathlib import Path

_VARIABLE = "TF_XLA_FLAGS"
_FLAG = "tf_xla_persistent_cache_directory="


def is_on() -> bool:
    """Whether programs may be kept for other processes."""
    flags = os.environ.get(_VARIABLE, "")
    if flags and not flags.startswith("-"):  # then it names a file that has them
        path = Path(flags)
        flags = path.read_text(encoding="utf-8") if path.is_file() else ""
    return _FLAG in flags

"""How precise floating-point dtypes are, those of ml_dtypes too."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def precision(dtype: np.dtype[Any]) -> float:
    """The difference between 1 and the next number; 0 for other dtypes than floating-point ones."""
    if dtype.kind not in "fcV":
        return 0.0
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except (TypeError, ValueError):  # integers of four bits
        return 0.0

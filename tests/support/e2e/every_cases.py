"""All cases of ops that XLA has no kernels for."""

from tests.support.e2e import (  # noqa: F401 - each adds its own
    every_data,
    every_images,
    every_math,
    every_sparse,
    every_state,
    every_text,
)
from tests.support.e2e.every_op import CASES

__all__ = ["CASES"]

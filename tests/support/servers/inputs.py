"""The inputs of the models' signatures, by name."""

from typing import Any

import numpy as np

FOUR = [1.0, 2.0, 3.0, 4.0]

NATIVE_INPUTS: dict[str, Any] = {
    "native": FOUR,
    "sums": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    "empty": np.zeros([0, 3]),
    "loop": FOUR,
    "in_order": 5.0,
    "in_order_nested": 5.0,
    "in_order_loop": 5.0,
    "in_order_batches": [1.0, 2.0, 3.0],
    "printed": FOUR,
    "table": FOUR,
    "scale": [1.0, 2.0],
    "scale_in_batches": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    "later": FOUR,
    "on_pool": [1.0],
    "root": 4.0,
    "stateless": [1.0, 2.0],
}
# For functions with graph mode's errors: what they compute something of, and what they refuse.
CHECKED_INPUTS: dict[str, tuple[Any, Any]] = {
    "looked_up": ([0.0, 9.0, 3.0, 3.0], [0.0, 10.0, 3.0, 3.0]),
    "looked_up_often": (FOUR, [-1.0, 2.0, 3.0, 4.0]),
    "divided": (FOUR, [1.0, 0.0, 3.0, 4.0]),
    "in_loop": (FOUR, [8.0, 2.0, 3.0, 4.0]),
    "before_loop": (FOUR, [10.0, 2.0, 3.0, 4.0]),
    "in_order_checked": (1.0, 0.0),
    "inverse": (FOUR, [1.0, 0.0, 3.0, 4.0]),
    "by_python": (FOUR, [1.0, 12.0, 3.0, 4.0]),
}
# XLA would compute something else.
VALUE_INPUTS: dict[str, Any] = {
    "casts": [2.0, float("nan"), -0.5, float("nan")],
    "four_bits": FOUR,
}
PYTHON_INPUTS: dict[str, Any] = {
    "double": FOUR,
    "thrice": [[1.0, 2.0, 3.0]],
    "eager": FOUR,
    "unique": [2.0, 1.0, 2.0, 1.0],
    "both": FOUR,
    "of_batches": FOUR,
    "in_batches": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    "on_device": FOUR,
}

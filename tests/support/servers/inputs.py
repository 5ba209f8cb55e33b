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

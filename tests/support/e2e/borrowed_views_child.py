"""Programs that TensorFlow starts on threads of its own, several at a time, and again and again.

For test_borrowed_views.py, in a process where memory that is freed is overwritten at once.
"""

import tensorflow as tf

from tests.support.e2e.borrowed_views_programs import LARGE, double, one, values
from tests.support.helpers import assert_same, jitted, plain

run = jitted(one(double, out=True))


@plain
def program(x: tf.Tensor) -> tf.Tensor:
    return tf.add_n([run(x + float(i)) for i in range(8)])


for again in range(50):
    x = values(LARGE) + float(again)
    assert_same(program(x).numpy(), sum((x.numpy() + i) * 4 + 1 for i in range(8)))

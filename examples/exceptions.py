"""Exceptions: what a callback raises reaches the caller, as TensorFlow's error and as itself."""

import numpy as np
import tensorflow as tf

import hostcall


class SensorError(ValueError):
    def __init__(self, sensor: int) -> None:
        super().__init__(f"sensor {sensor} is silent")
        self.sensor = sensor


def calibrate(readings: np.ndarray) -> np.ndarray:
    silent = np.flatnonzero(np.isnan(readings))
    if silent.size:
        raise SensorError(int(silent[0]))
    return readings - readings.mean()


@tf.function(jit_compile=True)
def process(readings: tf.Tensor) -> tf.Tensor:
    calibrated = tf.numpy_function(calibrate, [readings], tf.float32)
    calibrated.set_shape(readings.shape)
    return calibrated * 2


def main() -> None:
    try:
        process(tf.constant([1.0, np.nan, 3.0]))
    except tf.errors.InvalidArgumentError as error:  # ValueError and its subclasses become this one
        print(f"TensorFlow raised: {error.message.splitlines()[0]}")
        cause = hostcall.last_error(error)
    else:
        raise AssertionError("the exception got lost")

    assert isinstance(cause, SensorError)
    assert cause.sensor == 1
    print(f"the callback raised: {cause!r}, with sensor={cause.sensor}")
    assert cause.__traceback__ is not None
    print(f"in: {cause.__traceback__.tb_frame.f_code.co_name}")
    assert cause.__traceback__.tb_frame.f_code.co_name == "calibrate"

    after = process(tf.constant([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(after, [-2.0, 0.0, 2.0])
    print(f"and the next call works: {after.numpy()}")


if __name__ == "__main__":
    main()

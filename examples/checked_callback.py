"""Tests of callbacks: hostcall.check tries one against all that is declared of it.

In a test, the call alone is enough: it raises an AssertionError with all findings.
"""

import numpy as np
import tensorflow as tf

import hostcall

SIGNAL = np.array([3.0, 1.0, 2.0, 5.0], np.float32)
buffer = np.zeros(4, np.float32)


@hostcall.callback(result=lambda x: x, stateful=False)
def smoothed_in_place(x: np.ndarray) -> np.ndarray:
    buffer[: len(x)] = x
    buffer[1 : len(x)] += x[:-1]
    return buffer[: len(x)]  # and the next call writes into it


@hostcall.callback(
    result=lambda x: x, stateful=False, grad=lambda _inputs, _results, upstream: upstream
)
def smoothed(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y[1:] += x[:-1]
    return y


def gradient(_inputs: tuple[tf.Tensor], _results: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    return upstream + tf.concat([upstream[1:], [0.0]], axis=0)


@hostcall.callback(result=lambda x: x, stateful=False, grad=gradient)
def smoothed_right(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y[1:] += x[:-1]
    return y


def main() -> None:
    for callback in (smoothed_in_place, smoothed, smoothed_right):
        report = hostcall.check(callback, SIGNAL, raise_errors=False, skip=["name"])
        print(f"{callback.__name__}: {report.headline}")
        for finding in report.findings:
            print(f"  {finding.check}: {finding.what}\n  write: {finding.line}")
    assert report.ok


if __name__ == "__main__":
    main()

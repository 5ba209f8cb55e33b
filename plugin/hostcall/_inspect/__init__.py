"""The Python functions that files name: `hostcall.inspect`."""

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

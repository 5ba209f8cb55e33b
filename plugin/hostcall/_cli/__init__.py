"""The implementation of the command `hostcall`."""

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

"""Workers: processes that call Python functions for programs that hold no Python."""

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

"""JAX programs in TensorFlow, and TensorFlow functions in JAX."""

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

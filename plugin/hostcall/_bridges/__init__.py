"""Programs of JAX in TensorFlow, and functions of TensorFlow in JAX."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

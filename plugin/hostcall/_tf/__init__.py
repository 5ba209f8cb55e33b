"""All that hostcall uses of TensorFlow beyond its public API."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

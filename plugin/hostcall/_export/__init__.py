"""Exported programs: written, and loaded into TensorFlow."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

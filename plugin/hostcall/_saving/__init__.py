"""Saved graphs: the names of Python functions in them, and the way back from name to function."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

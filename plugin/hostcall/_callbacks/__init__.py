"""Python functions as hostcall sees them: declarations, lookup, result shapes and calls."""

# TensorFlow comes first: it loads hostcall's TensorFlow side, so no import cycle can arise.
import tensorflow  # noqa: F401

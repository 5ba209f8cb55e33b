"""What a Python function is to TensorFlow: its spec, structures, shapes, lookup and gradients."""

# TensorFlow comes first: it loads hostcall's TensorFlow side, so no import cycle can arise.
import tensorflow  # noqa: F401

"""What a Python function is to hostcall: what is declared of it, and how it is found and called."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

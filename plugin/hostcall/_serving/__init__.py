"""Workers: processes that call Python functions for programs that hold no Python."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

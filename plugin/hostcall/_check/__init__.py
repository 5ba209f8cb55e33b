"""`hostcall.check`: tries a callback against what is declared of it, one module a kind of check."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

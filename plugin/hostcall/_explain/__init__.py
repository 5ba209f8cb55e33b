"""`hostcall.explain`: facts on a function, as a table or as a page with pictures."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

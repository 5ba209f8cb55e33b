"""What TensorFlow's compiler is told: routes, order, shapes, and lowering."""

# Whichever module comes first: TensorFlow brings all of its side of hostcall, which is no circle.
import tensorflow  # noqa: F401

"""The compiler side for TensorFlow: routes, order of side effects, shapes, and lowering."""

# TensorFlow imports hostcall's modules for it. Importing it first avoids an import circle.
import tensorflow  # noqa: F401

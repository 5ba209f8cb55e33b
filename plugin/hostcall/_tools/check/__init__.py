"""`hostcall.check`: tests a callback against its declaration, with a module per kind of check."""

# Importing TensorFlow loads hostcall's TensorFlow modules. Done first, it avoids circular imports.
import tensorflow  # noqa: F401

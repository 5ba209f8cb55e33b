"""`hostcall.explain`: facts on a function, as a table or as a page with pictures."""

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

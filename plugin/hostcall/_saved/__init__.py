"""Saved graphs: names for the Python functions in them, and the functions for those names."""

# Before any module here: TensorFlow's import loads them all, and must find none half imported.
import tensorflow  # noqa: F401

"""Exported programs: writing them, and loading them into TensorFlow."""

# Importing TensorFlow imports hostcall's TensorFlow side: done first, this avoids import cycles.
import tensorflow  # noqa: F401

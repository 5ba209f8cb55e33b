"""Exported programs: written, and loaded into TensorFlow."""

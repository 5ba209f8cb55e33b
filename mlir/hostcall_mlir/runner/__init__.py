"""Exported programs, run by JAX in a process without TensorFlow."""

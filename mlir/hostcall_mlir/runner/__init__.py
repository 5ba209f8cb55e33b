"""A runner that executes exported programs with JAX, in a process without TensorFlow."""

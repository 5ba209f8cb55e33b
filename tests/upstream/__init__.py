"""TensorFlow's and JAX's own tests, each without hostcall and with it imported, test by test."""

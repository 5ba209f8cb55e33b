"""Whether TensorFlow is installed: in `make test-jax` it is not."""

import importlib.util

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

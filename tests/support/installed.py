"""The presence of TensorFlow: in `make test-jax` it is not installed."""

import importlib.util

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

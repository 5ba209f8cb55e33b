"""The presence of TensorFlow: in the session `jax` of nox it is not installed."""

import importlib.util

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

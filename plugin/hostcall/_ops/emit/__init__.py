"""Where ops come from: script ops, `hostcall.callback`, `hostcall.bind`, batches, gradients."""

# TensorFlow comes first: it loads hostcall's TensorFlow side, so no import cycle can arise.
import tensorflow  # noqa: F401

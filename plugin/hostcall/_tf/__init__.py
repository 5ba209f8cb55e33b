"""All that hostcall uses of TensorFlow beyond its public API."""

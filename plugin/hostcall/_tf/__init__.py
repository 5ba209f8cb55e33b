"""All uses of TensorFlow's private API, behind functions of hostcall's own."""

# Before any module here: TensorFlow's import loads them all, and must find none half imported.
import tensorflow  # noqa: F401

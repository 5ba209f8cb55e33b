"""The list of tests to leave out where TensorFlow is not installed: they export its functions."""

from tests.support.installed import TENSORFLOW

collect_ignore = [] if TENSORFLOW else ["test_contexts.py", "test_partition.py"]

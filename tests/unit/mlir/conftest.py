"""Where TensorFlow is not installed, the tests that export its functions are left out."""

from tests.support.installed import TENSORFLOW

collect_ignore = [] if TENSORFLOW else ["test_contexts.py", "test_partition.py"]

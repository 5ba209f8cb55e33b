"""The lock of all recordings."""

from hostcall_runtime import _locks

# A fork waits for it: what a child does with a database that is being written would harm the file.
LOCK = _locks.new_lock()

"""The passes of `hostcall-opt`, a file each, and what only they use."""

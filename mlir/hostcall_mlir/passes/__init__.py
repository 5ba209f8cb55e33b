"""The passes of `hostcall-opt`, and the helpers that only they use."""

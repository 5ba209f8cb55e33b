"""Fixes that are undone, one at a time, to see that a test notices: README.md."""

"""Saved graphs: the names of Python functions in them, and the way back from name to function."""

"""Recordings of Python calls: their arguments and results in a file, and replays from it.

This package knows no framework.
"""

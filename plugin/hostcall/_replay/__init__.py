"""Recordings: what calls of Python functions got and gave, in a file, and replayed from it.

It knows no framework.
"""

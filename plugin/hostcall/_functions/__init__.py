"""Declarations, callbacks and statistics of users' Python functions, without any framework."""

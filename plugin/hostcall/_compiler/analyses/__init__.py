"""Analyses: what is known of a program's values, sizes, loops and effects; they change nothing."""

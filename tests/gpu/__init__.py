"""Tests and benchmarks that want a GPU: what this machine has, and what is run on it."""

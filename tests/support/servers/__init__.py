"""Servers without Python for tests: a C program, and the SavedModels that it serves."""

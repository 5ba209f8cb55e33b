"""Calls without side effects that go on while their program does."""

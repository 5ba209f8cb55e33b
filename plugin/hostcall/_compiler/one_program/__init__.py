"""A function that stays one XLA program: effects in order, overlapping calls, regions."""

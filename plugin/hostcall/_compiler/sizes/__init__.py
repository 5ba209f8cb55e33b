"""Results of bounded size, followed through a function before XLA compiles it."""

"""StableHLO with host calls, by jaxlib's MLIR."""

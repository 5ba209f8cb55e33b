"""StableHLO with host calls, through jaxlib's MLIR."""

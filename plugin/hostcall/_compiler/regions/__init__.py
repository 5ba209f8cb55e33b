"""Regions: host ops that a program calls, in the place of being partitioned around them."""

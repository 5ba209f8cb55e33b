"""JAX on CPUs, whatever else the machine has."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

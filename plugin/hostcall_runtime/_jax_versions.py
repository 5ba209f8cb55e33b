"""The JAX versions that the tests have passed with. Does not import JAX."""

from __future__ import annotations

# The minor versions that the tests have passed with, oldest first. In older ones MLIR ends the
# process when Python reads a constant of complex numbers.
TESTED = ("0.8", "0.9", "0.10", "0.11", "0.12")

INSTALL = "pip install 'jax>=0.8,<0.13'"


def untested(version: str) -> str | None:
    """Return the warning for a JAX version that no test has passed with, else None."""
    numbers = version.split(".")
    if ".".join(numbers[:2]) in TESTED and all(number.isdigit() for number in numbers):
        return None
    return (
        f"hostcall.jax was tested with JAX {TESTED[0]} to {TESTED[-1]}, and this is {version}. "
        "Features that need private names of JAX's which it lacks, or which have changed, are off, "
        "with a warning for each; programs without calls are JAX's own. `hostcall doctor` lists "
        f"all names. If something goes wrong, try a version that was tested: {INSTALL}."
    )

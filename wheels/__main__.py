"""Builds the wheels and the sdist into `dist`."""

from __future__ import annotations

import argparse

from wheels import addresses, building, interpreters, parts
from wheels.matrix import SERVED


def main() -> None:
    """Build a wheel for each Python that is found, and print the Pythons that are not."""
    parser = argparse.ArgumentParser(prog="python -m wheels", description=__doc__)
    parser.add_argument("--python", nargs="*", default=list(SERVED), choices=SERVED)
    parser.add_argument("--tensorflow", nargs="*", help="minor versions; all if it is left out")
    parser.add_argument("--address", help="of the repository, for the links that an index shows")
    arguments = parser.parse_args()
    python = None
    built = []
    for version in arguments.python:
        interpreter = interpreters.find(version)
        if interpreter is None:
            print(f"Python {version} is not on this machine: no wheel for it.")
            continue
        served = SERVED[version]
        minors = [minor for minor in served if minor in (arguments.tensorflow or served)]
        served_here = f"TensorFlow {', '.join(minors)}" if minors else "JAX alone"
        print(f"Python {version}, for {served_here}:", flush=True)
        python = parts.environment(interpreter, version)
        built.append(building.wheel(python, version, minors))
        print(f"Built {built[-1]}", flush=True)
    if python is None:
        raise SystemExit("No Python of this machine can build a wheel.")
    built.append(building.sdist(python))
    print(f"Packed {built[-1]}")
    for package in built if arguments.address else ():
        addresses.give(package, arguments.address.rstrip("/"))


if __name__ == "__main__":
    main()

"""What pip installs into an environment: `python -m tools.requirements test dev` prints it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from wheels.matrix import TENSORFLOW

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(groups: Iterable[str], tensorflow: str = "") -> list[str]:
    """Return what builds and runs hostcall, and the packages of dependency groups.

    Args:
      groups: names of `dependency-groups` in pyproject.toml, or of extras of hostcall.
      tensorflow: a minor version of TensorFlow, `nightly`, or `none`; "" for the usual one.
    """
    table = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))
    lists = table["project"]["optional-dependencies"] | table["dependency-groups"]
    # With the build requirements in an environment, extension modules are built without isolation,
    # and TensorFlow is downloaded once instead of for every build.
    found = [*table["build-system"]["requires"], *lists["build"], *table["project"]["dependencies"]]
    if tensorflow:
        found = [line for line in found if not line.startswith("tensorflow")]
        found += _of_tensorflow(tensorflow)
    return [*found, *(line for group in groups for line in lists[group])]


def _of_tensorflow(version: str) -> list[str]:
    if version == "none":
        return []
    if version == "nightly":
        return [TENSORFLOW.replace("tensorflow", "tf-nightly")]
    found = [f"{TENSORFLOW}=={version}.*,>={version}.0rc0"]  # release candidates, too
    if version in ("2.19", "2.20"):
        found.append("protobuf<7")  # whose text format lacks an option that 2.20 gives
    return found


if __name__ == "__main__":
    print(*requirements(sys.argv[1:]), sep="\n")

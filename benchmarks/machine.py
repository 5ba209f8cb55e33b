"""The machine and the versions that figures are taken with."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path


def facts() -> dict[str, object]:
    """Return the facts by which to judge figures; nothing names the machine itself."""
    versions = ("hostcall", "tensorflow-cpu", "tensorflow", "jax", "numpy")
    return {
        "cpu": _model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: version for name in versions if (version := _version(name))},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _model() -> str:
    fields = dict(
        tuple(part.strip() for part in line.split(":", 1))
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if ":" in line
    )
    if "model name" not in fields:
        return platform.machine()
    # Virtual machines may show a shortened name; the numbers identify the generation.
    return f"{fields['model name']}, family {fields['cpu family']}, model {fields['model']}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

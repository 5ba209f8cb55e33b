"""`python -m tests.gpu FILE ...`: runs the tests that want a GPU, on what there is.

TensorFlow runs the files that are named, JAX those of tests/gpu and tests/jax. The exit status is 0
where all tests have passed, 1 where some have failed, and 77 where there is no GPU.
"""
# ruff: noqa: T201 - it prints its report

from __future__ import annotations

import os
import subprocess
import sys

from tests.gpu.found import NO_GPU, find

# Several processes share the GPU, and each would take most of its memory.
_SHARED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def main(files: list[str]) -> int:
    print(found := find())
    statuses = []
    if found.tensorflow:
        statuses += [_run("TensorFlow on GPU:0", files, HOSTCALL_TEST_DEVICE="GPU:0")]
    if found.jax:
        statuses += [_run("JAX on its GPUs", ["tests/gpu", "tests/jax"], JAX_PLATFORMS="cuda,cpu")]
    if not statuses:
        print("No GPU: nothing was run. It takes tensorflow[and-cuda] or jax[cuda12].")
        return NO_GPU
    return int(any(statuses))


def _run(title: str, files: list[str], **variables: str) -> int:
    print(f"\n{title}:", flush=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    shared = ["--numprocesses=auto", "--maxprocesses=4", "--dist=loadfile"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **_SHARED, **variables}
    return subprocess.run([*pytest, *shared, *files], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

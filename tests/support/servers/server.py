"""The C program that serves: built and spoken to."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from tests.support import native_code

HERE = Path(__file__).parent

# Without an answer for so long, it hangs.
_LIMIT = 120


def build(compiler: str, source: Path, target: Path, *options: str) -> Path:
    """A program or library of a file."""
    found = shutil.which(compiler)
    assert found is not None, f"the tests want a C and a C++ compiler: {compiler}"
    subprocess.run([found, "-O1", "-Wall", str(source), "-o", str(target), *options], check=True)
    return target


def build_libraries(folder: Path) -> None:
    """The libraries of the native code in functions.py."""
    shared = ("-shared", "-fPIC")
    build("cc", HERE / "native.c", folder / "libserving_test.so", *shared, "-lm")
    handlers = HERE.parent / "native_code" / "handlers.cc"
    options = ("-std=c++17", f"-isystem{native_code.headers()}")
    build("c++", handlers, folder / "libhandlers_test.so", *shared, *options)


def build_server(target: Path) -> Path:
    """The program of server.c, linked to the TensorFlow that is installed."""
    libraries = tf.sysconfig.get_lib()
    names = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
    found = (f"-isystem{tf.sysconfig.get_include()}", f"-L{libraries}", f"-Wl,-rpath,{libraries}")
    linked = [f"-l:{name}" for name in names]
    return build("cc", HERE / "server.c", target, "-std=gnu11", *found, *linked, "-lpthread")


@dataclasses.dataclass
class ServingError(Exception):
    """What the server has said of a command that failed."""

    code: int
    message: str


class Server:
    """A running server.

    Args:
      program: what `build_server` has made.
      library: `hostcall.serving_library()`.
      log: where its messages go.
      environment: what is set for it beside the process's own variables.
    """

    def __init__(self, program: Path, library: str, log: Path, **environment: str) -> None:
        variables = {k: v for k, v in os.environ.items() if not k.startswith("HOSTCALL_")}
        variables |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_ENABLE_ONEDNN_OPTS": "0"} | environment
        self._log = log
        with log.open("w") as messages:
            self._process = subprocess.Popen(
                [str(program), library],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                errors="replace",
            )
        self._sessions: dict[str, str] = {}
        self._answer()

    def run(
        self, model: str, endpoints: Sequence[str], values: Sequence[float], shape: Sequence[int]
    ) -> tuple[list[int], list[str]]:
        """The shape and the elements of what a signature returns for floats.

        Raises:
          ServingError: when it fails.
        """
        sizes = "x".join(map(str, shape)) or "-"
        text = ",".join(map(repr, values)) or "-"
        answer = self._obey("run", self._session(model), "float32", sizes, text, *endpoints)
        got, _, elements = answer.partition(" ")
        dims = [] if got == "-" else [int(size) for size in got.split("x")]
        return dims, elements.split(",") if elements else []

    def serve(
        self, model: str, endpoints: Sequence[str], requests: int, factor: float, offset: float
    ) -> tuple[int, int, int, str]:
        """How many requests for vectors of four from 8 threads succeeded, failed, were wrong."""
        counts = ("8", str(requests), "4", repr(factor), repr(offset))
        answer = self._obey("serve", self._session(model), *counts, *endpoints)
        succeeded, failed, wrong, message = answer.split(" ", 3)
        return int(succeeded), int(failed), int(wrong), message

    def load(self, model: str) -> None:
        """Loads a SavedModel, as the others do when they first want it."""
        self._session(model)

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text(errors="replace")

    def close(self) -> int:
        """Ends it; returns its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(_LIMIT)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def _session(self, model: str) -> str:
        if model not in self._sessions:
            self._sessions[model] = self._obey("load", model)
        return self._sessions[model]

    def _obey(self, *words: str) -> str:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server has ended: {self._process.wait(_LIMIT)}\n{self.log()[-4000:]}"
        kind, _, text = line.rstrip("\n").partition(" ")
        if kind == "ok":
            return text
        code, _, message = text.partition(" ")
        raise ServingError(int(code), message.replace("\\n", "\n"))

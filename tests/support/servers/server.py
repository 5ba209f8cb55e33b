"""The C program that serves, the saved models that it serves, and what they need."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import hostcall
from tests.support import native_code
from tests.support.servers.inputs import FOUR

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

# A server that gives no answer for so long hangs.
_LIMIT = 120


@dataclasses.dataclass
class Site:
    """The models to serve, and the server's program.

    `said` has the endpoints of the signatures, by model, and under "values" what they compute.
    """

    folder: Path
    program: Path
    said: dict[str, Any]

    @property
    def libraries(self) -> str:
        return str(self.folder / "libraries")

    def model(self, name: str) -> str:
        return str(self.folder / "models" / name)


def build(folder: Path) -> Site:
    """Builds everything, in another process where that loads the libraries."""
    libraries = folder / "libraries"
    libraries.mkdir()
    shared = ("-O1", "-Wall", "-shared", "-fPIC")
    native_code.build("cc", HERE / "native.c", libraries / "libserving_test.so", *shared, "-lm")
    handlers = HERE.parent / "native_code" / "handlers.cc"
    options = (*shared, "-std=c++17", f"-isystem{native_code.headers()}")
    native_code.build("c++", handlers, libraries / "libhandlers_test.so", *options)
    tensorflow = tf.sysconfig.get_lib()
    program = native_code.build(
        "cc", HERE / "server.c", folder / "server",
        *("-O1", "-Wall", "-std=gnu11", f"-isystem{tf.sysconfig.get_include()}"),
        *(f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}", "-lpthread"),
        *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
    )  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.servers.models", str(folder / "models")],
        cwd=ROOT,
        env=os.environ | {"SERVING_TEST_LIBRARIES": str(libraries)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return Site(folder, program, json.loads(ended.stdout.splitlines()[-1]))


@dataclasses.dataclass
class ServingError(Exception):
    code: int
    message: str


class Server:
    """A running server of a site's models, with these variables in its environment."""

    def __init__(self, site: Site, name: str, **environment: str) -> None:
        variables = {k: v for k, v in os.environ.items() if not k.startswith("HOSTCALL_")}
        variables |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_ENABLE_ONEDNN_OPTS": "0"} | environment
        self._site = site
        self._log = site.folder / f"{name}.log"
        with self._log.open("w") as messages:
            self._process = subprocess.Popen(
                [str(site.program), hostcall.serving_library()],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                errors="replace",
            )
        self._sessions: dict[str, str] = {}
        self._answer()

    def run(self, path: str, endpoints: Sequence[str], value: Any) -> tuple[list[int], list[str]]:
        """The shape and the elements of what a signature of a saved model returns for floats."""
        array = np.asarray(value, np.float32)
        sizes = "x".join(map(str, array.shape)) or "-"
        text = ",".join(map(repr, array.ravel().tolist())) or "-"
        answer = self._obey("run", self._session(path), sizes, text, *endpoints)
        got, _, elements = answer.partition(" ")
        dims = [] if got == "-" else [int(size) for size in got.split("x")]
        return dims, elements.split(",") if elements else []

    def text(self, model: str, signature: str, value: Any) -> tuple[list[int], list[str]]:
        return self.run(self._site.model(model), self._site.said[model][signature], value)

    def computed(self, model: str, signature: str, value: Any) -> np.ndarray:
        shape, elements = self.text(model, signature, value)
        return np.asarray([float(element) for element in elements]).reshape(shape)

    def failure(self, model: str, signature: str, value: Any) -> ServingError:
        with pytest.raises(ServingError) as raised:
            self.text(model, signature, value)
        return raised.value

    def serve(
        self, model: str, signature: str, requests: int, factor: float, offset: float
    ) -> tuple[int, int, int, str]:
        """Request vectors of four from 8 threads; count successes, failures and wrong results."""
        session = self._session(self._site.model(model))
        counts = ("8", str(requests), "4", repr(factor), repr(offset))
        answer = self._obey("serve", session, *counts, *self._site.said[model][signature])
        succeeded, failed, wrong, message = answer.split(" ", 3)
        return int(succeeded), int(failed), int(wrong), message

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(_LIMIT) == 0, self.log()
        self._process.stdout.close()

    def _session(self, path: str) -> str:
        if path not in self._sessions:
            self._sessions[path] = self._obey("load", path)
        return self._sessions[path]

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


class Altered:
    """Copies of the model "one" with other tokens."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.endpoints = site.said["one"]
        self._from = Path(site.model("one"))
        self._folder = folder
        self._count = 0
        self.model = saved_model_pb2.SavedModel()
        self.model.ParseFromString((self._from / "saved_model.pb").read_bytes())

    def write(self, change: Callable[[bytes], bytes]) -> str:
        self._count += 1
        target = self._folder / str(self._count)
        shutil.copytree(self._from, target)
        changed = saved_model_pb2.SavedModel()
        changed.CopyFrom(self.model)
        for node in self._nodes(changed):
            node.attr["token"].s = change(node.attr["token"].s)
        (target / "saved_model.pb").write_bytes(changed.SerializeToString())
        return str(target)

    @staticmethod
    def _nodes(model: Any) -> Any:
        for meta in model.meta_graphs:
            for function in meta.graph_def.library.function:
                yield from (node for node in function.node_def if "token" in node.attr)

    def outcome(self, server: Server, change: Callable[[bytes], bytes], signature: str) -> Any:
        """Return the server's results for a model with changed tokens, or its error."""
        value = FOUR if signature.startswith("native") else [FOUR[:3]]
        try:
            return server.run(self.write(change), self.endpoints[signature], value)[1]
        except ServingError as error:
            return error

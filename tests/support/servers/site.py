"""What tests serve: the program, the libraries and the saved models, built in a folder."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall
from tests.support.servers import server as servers
from tests.support.servers.server import Server, ServingError

ROOT = Path(__file__).resolve().parents[3]


@dataclasses.dataclass
class Site:
    """What there is to serve.

    Attributes:
      folder: where everything is.
      program: the server's.
      said: the endpoints of the signatures, by model, and under "values" what they compute.
    """

    folder: Path
    program: Path
    said: dict[str, Any]

    @property
    def libraries(self) -> str:
        return str(self.folder / "libraries")

    def model(self, name: str) -> str:
        return str(self.folder / "models" / name)

    def start(self, name: str, **environment: str) -> Running:
        """A server that has these variables in its environment."""
        log = self.folder / f"{name}.log"
        return Running(self, Server(self.program, hostcall.serving_library(), log, **environment))


@dataclasses.dataclass
class Running:
    """A server, and what it serves."""

    site: Site
    server: Server

    def text(self, model: str, signature: str, value: Any) -> tuple[list[int], list[str]]:
        """The shape and the elements of what a signature returns for floats.

        Raises:
          ServingError: when it fails.
        """
        array = np.asarray(value, np.float32)
        endpoints = self.site.said[model][signature]
        elements = array.ravel().tolist()
        return self.server.run(self.site.model(model), endpoints, elements, array.shape)

    def computed(self, model: str, signature: str, value: Any) -> np.ndarray:
        """What it returns, where that is numbers."""
        shape, elements = self.text(model, signature, value)
        return np.asarray([float(element) for element in elements]).reshape(shape)

    def failure(self, model: str, signature: str, value: Any) -> ServingError:
        """How it fails."""
        with pytest.raises(ServingError) as raised:
            self.text(model, signature, value)
        return raised.value

    def serve(
        self, model: str, signature: str, requests: int, factor: float, offset: float
    ) -> tuple[int, int, int, str]:
        """As `Server.serve`."""
        endpoints = self.site.said[model][signature]
        return self.server.serve(self.site.model(model), endpoints, requests, factor, offset)

    def close(self) -> None:
        """Ends it, which must go well."""
        assert self.server.close() == 0, self.server.log()


def build(folder: Path) -> Site:
    """Builds everything, in another process where that loads the libraries."""
    (folder / "libraries").mkdir()
    servers.build_libraries(folder / "libraries")
    program = servers.build_server(folder / "server")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.servers.models", str(folder / "models")],
        cwd=ROOT,
        env=os.environ | {"SERVING_TEST_LIBRARIES": str(folder / "libraries")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return Site(folder, program, json.loads(ended.stdout.splitlines()[-1]))

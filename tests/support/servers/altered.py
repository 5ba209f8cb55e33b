"""Models whose tokens were altered."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2

from tests.support.servers.inputs import FOUR
from tests.support.servers.server import Server, ServingError
from tests.support.servers.site import Site


class Altered:
    """Copies of the model "one" with other tokens."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.endpoints = site.said["one"]
        self._from = Path(site.model("one"))
        self._folder = folder
        self._count = 0
        self.model = saved_model_pb2.SavedModel()
        self.model.ParseFromString((self._from / "saved_model.pb").read_bytes())

    def tokens(self) -> list[bytes]:
        return sorted({node.attr["token"].s for node in self._nodes(self.model)})

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
        """What the server returns for a model with changed tokens, or its error."""
        shape, values = ([4], FOUR) if signature.startswith("native") else ([1, 3], FOUR[:3])
        try:
            return server.run(self.write(change), self.endpoints[signature], values, shape)[1]
        except ServingError as error:
            return error

"""The address of the project in what a package index shows: links of the README, project links.

The sources name no address. An index has no other files beside the README, so its links have to
lead to where the sources are published.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tarfile
import tempfile
import zipfile
from pathlib import Path

# A link or a picture in Markdown that leads to another file of the project.
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#|mailto:)(?P<path>[^)\s]+)\)")
# The links beside the README, with the places of the pages that they lead to.
_PROJECT = {
    "Repository": "",
    "Documentation": "/blob/main/docs/guide.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


def give(package: Path, address: str) -> None:
    """Write the address of the project into a wheel or an sdist, in place.

    Args:
        package: A wheel, or an sdist.
        address: The address of the repository, without a slash at its end, on a host that shows a
            file at `ADDRESS/blob/main/FILE` and serves it at `ADDRESS/raw/main/FILE`.
    """
    if package.suffix == ".whl":
        _give_wheel(package, address)
    else:
        _give_sdist(package, address)


def with_address(metadata: str, address: str) -> str:
    """Return the metadata of a package, the README at its end, with links to its sources."""
    fields, _, readme = metadata.partition("\n\n")
    links = [f"Project-URL: {name}, {address}{place}" for name, place in _PROJECT.items()]
    readme = _LINK.sub(lambda link: _absolute(link, address), readme)
    return "\n".join([fields, *links]) + f"\n\n{readme}"


def _absolute(link: re.Match[str], address: str) -> str:
    kind = "raw" if link["picture"] else "blob"
    return f"{link['picture']}[{link['text']}]({address}/{kind}/main/{link['path']})"


def _give_wheel(wheel: Path, address: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {info: archive.read(info) for info in archive.infolist()}
    name, metadata = next(
        (info.filename, with_address(text.decode(), address).encode())
        for info, text in files.items()
        if info.filename.endswith(".dist-info/METADATA")
    )
    digest = base64.urlsafe_b64encode(hashlib.sha256(metadata).digest()).rstrip(b"=").decode()
    line = f"{name},sha256={digest},{len(metadata)}"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in files.items():
            if info.filename == name:
                content = metadata
            elif info.filename.endswith(".dist-info/RECORD"):
                lines = content.decode().splitlines()
                lines = [line if old.startswith(f"{name},") else old for old in lines]
                content = ("\n".join(lines) + "\n").encode()
            archive.writestr(info, content)


def _give_sdist(sdist: Path, address: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        for metadata in Path(folder).glob("*/PKG-INFO"):
            metadata.write_text(with_address(metadata.read_text("utf-8"), address), "utf-8")
        with tarfile.open(sdist, "w:gz") as archive:
            for path in Path(folder).iterdir():
                archive.add(path, path.name)

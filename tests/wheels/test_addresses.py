"""wheels.addresses: the links that a package index shows."""

import csv
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from importlib import metadata
from pathlib import Path

from tests.support.pages import ROOT
from wheels import addresses

ADDRESS = "https://example.org/hostcall"
METADATA = """\
Metadata-Version: 2.2
Name: hostcall
Version: 1.0
Description-Content-Type: text/markdown

# hostcall

[The guide](docs/guide.md#shapes), [a heading](#use), [XLA](https://example.org/xla).

![How it runs](docs/pictures/explained.svg)
"""
EXPECTED = """\
Metadata-Version: 2.2
Name: hostcall
Version: 1.0
Description-Content-Type: text/markdown
Project-URL: Repository, https://example.org/hostcall
Project-URL: Documentation, https://example.org/hostcall/blob/main/docs/guide.md
Project-URL: Changelog, https://example.org/hostcall/blob/main/CHANGELOG.md
Project-URL: Issues, https://example.org/hostcall/issues

# hostcall

[The guide](https://example.org/hostcall/blob/main/docs/guide.md#shapes), [a heading](#use), \
[XLA](https://example.org/xla).

![How it runs](https://example.org/hostcall/raw/main/docs/pictures/explained.svg)
"""


def test_links_lead_to_the_address() -> None:
    assert addresses.with_address(METADATA, ADDRESS) == EXPECTED


def test_all_links_of_the_readme_lead_to_files_of_the_project() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = addresses.with_address(f"Name: hostcall\n\n{readme}", ADDRESS)
    given = re.findall(rf"\({ADDRESS}/(?:blob|raw)/main/([^)#]*)(?:#[^)]*)?\)", text)
    assert len(given) > 30
    assert all((ROOT / path).exists() for path in given)
    assert not re.search(r"\]\((?!https?:|#)", text)
    listed = message_from_string(text).get_all("Project-URL", [])
    places = [line.partition("/blob/main/")[2] for line in listed]
    assert all((ROOT / place).is_file() for place in places if place)


def test_a_wheel_with_an_address_is_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "hostcall-1.0-py3-none-any.whl"
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    folder = "hostcall-1.0.dist-info"
    record = f"hostcall.py,,\n{folder}/METADATA,sha256=old,3\n{folder}/WHEEL,,\n{folder}/RECORD,,\n"
    files = {"METADATA": METADATA, "WHEEL": kind, "RECORD": record}
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hostcall.py", "ONE = 1\n")
        for name, text in files.items():
            archive.writestr(f"{folder}/{name}", text)
    addresses.give(wheel, ADDRESS)
    options = [
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-cache-dir",
        f"--target={tmp_path / 'to'}",
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True)
    (installed,) = metadata.distributions(path=[str(tmp_path / "to")])
    assert len(installed.metadata.get_all("Project-URL") or []) == 4
    with zipfile.ZipFile(wheel) as archive:
        written = archive.read(f"{folder}/METADATA")
        lines = list(csv.reader(io.StringIO(archive.read(f"{folder}/RECORD").decode())))
        assert [name for name, *_ in lines] == archive.namelist()
    assert [size for name, _, size in lines if name.endswith("METADATA")] == [str(len(written))]


def test_an_sdist_gets_an_address(tmp_path: Path) -> None:
    sdist, name = tmp_path / "hostcall-1.0.tar.gz", "hostcall-1.0/PKG-INFO"
    with tarfile.open(sdist, "w:gz") as archive:
        for path, text in {name: METADATA, "hostcall-1.0/setup.txt": "x"}.items():
            info = tarfile.TarInfo(path)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    addresses.give(sdist, ADDRESS)
    with tarfile.open(sdist) as archive:
        assert sorted(archive.getnames())[-2:] == [name, "hostcall-1.0/setup.txt"]
        read = archive.extractfile(name)
        assert read is not None
        assert f"Project-URL: Repository, {ADDRESS}\n".encode() in read.read()

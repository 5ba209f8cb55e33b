"""The attributes on nodes and functions: each is written in one place for Python and C++."""

import re
from pathlib import Path

from hostcall._tf.graph import attributes

ROOT = Path(__file__).parents[3]
NAMES = {name: value for name, value in vars(attributes).items() if name.isupper()}


def test_each_name_stands_for_an_attribute_of_its_own() -> None:
    assert len(set(NAMES.values())) == len(NAMES)
    assert all(value.startswith("_hostcall_") for value in NAMES.values())


def test_no_other_file_writes_the_name_of_an_attribute() -> None:
    names = re.compile("|".join(f'"{value}"' for value in NAMES.values()))
    files = [
        path
        for folder in ("csrc", "plugin", "mlir")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cc", ".h")
    ]
    assert len(files) > 100
    assert [path.name for path in files if names.search(path.read_text())] == ["attributes.py"]

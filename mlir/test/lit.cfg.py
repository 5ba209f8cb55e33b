"""lit's configuration: `make test` runs lit here, through tests/unit/mlir/test_passes.py."""

import shutil
import sys
import tempfile
from pathlib import Path

import lit.formats

config.name = "hostcall-mlir"  # noqa: F821  # lit gives it
config.test_format = lit.formats.ShTest()  # noqa: F821
config.suffixes = [".mlir", ".test"]  # noqa: F821
config.test_exec_root = lit_config.params.get("exec_root", tempfile.gettempdir())  # noqa: F821
config.environment["PYTHONPATH"] = str(Path(__file__).parents[1])  # noqa: F821

_beside = Path(sys.executable).parent
config.substitutions += [  # noqa: F821
    (r"\bhostcall-opt\b", f"'{sys.executable}' -m hostcall_mlir.opt"),
    (r"\bfilecheck\b", f"'{shutil.which('filecheck', path=_beside) or 'filecheck'}'"),
]

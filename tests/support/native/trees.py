"""Other sources of hostcall than these, with extension modules of their own, in a process."""

import dataclasses
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

INSTALLED = Path(sysconfig.get_path("platlib"))
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
# The folder of what is built for one TensorFlow alone.
BUILT = str(next(INSTALLED.glob("hostcall/_built/tensorflow_*")).relative_to(INSTALLED))
# What of csrc/ is installed, by its folder: the file, and the folder where it is.
LIBRARIES = {
    "runtime": (f"_runtime{SUFFIX}", "hostcall_runtime"),
    "tensorflow": (f"_tensorflow{SUFFIX}", BUILT),
    "serving": ("libhostcall_serving.so", BUILT),
}
_BUILD_INFO = "_build_info.py"


@dataclasses.dataclass(frozen=True)
class Tree:
    """A folder of sources, laid out as the repository is."""

    path: Path

    @property
    def out(self) -> Path:
        return self.path / "out"

    def prepare(self) -> None:
        """Makes what every process with these sources needs."""
        (self.path / "plugin" / BUILT).mkdir(parents=True, exist_ok=True)
        # What an editable installation imports when Python starts, and would find the originals by.
        shim = self.path / "shim"
        shim.mkdir(exist_ok=True)
        (shim / "_editable_skbc_hostcall.py").touch()

    def take_installed(self) -> None:
        for file, folder in [*LIBRARIES.values(), (_BUILD_INFO, BUILT)]:
            shutil.copy(INSTALLED / folder / file, self.path / "plugin" / folder)

    def build(self, *more: str) -> None:
        """Build the extension modules with more options for CMake, beside the Python files."""
        tool = str(Path(sys.executable).with_name("cmake"))
        ninja = f"-DCMAKE_MAKE_PROGRAM={Path(sys.executable).with_name('ninja')}"
        python = f"-DPython_EXECUTABLE={sys.executable}"
        options = ["-G", "Ninja", ninja, python, "-DCMAKE_BUILD_TYPE=Release"]
        options += ["--log-level=WARNING", "-DSKBUILD_STATE=editable", *more]
        directory = str(self.out)
        subprocess.check_call([tool, "-S", str(self.path), "-B", directory, *options])
        subprocess.check_call([tool, "--build", directory, "--", "--quiet"])
        for source, (file, folder) in LIBRARIES.items():
            shutil.copy(self.out / "csrc" / source / file, self.path / "plugin" / folder)
        shutil.copy(self.out / _BUILD_INFO, self.path / "plugin" / BUILT)

    def environment(self, *paths: Path) -> dict[str, str]:
        """The variables of a process that imports these sources; `paths` come last."""
        first = [self.path / name for name in ("shim", "plugin", "mlir")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*first, *paths]))}

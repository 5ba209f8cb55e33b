"""mlir/: its tests in lit, and what those cannot say."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import hostcall_mlir

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "mlir" / "test"
FILES = sorted(path.name for path in TESTS.glob("*.mlir"))
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "mlir")}

_BEFORE_AND_AFTER = re.compile(
    r"^Before:\n\n```mlir\n(.*?)```\n\nAfter `(.*?)`:\n\n```mlir\n(.*?)```", re.M | re.S
)


@pytest.mark.parametrize("name", FILES)
def test_file_passes_in_lit(name: str, tmp_path: Path) -> None:
    lit = ["-c", "from lit.main import main; main()", f"--param=exec_root={tmp_path}", "-v"]
    done = python(*lit, str(TESTS / name))
    assert "Passed: 1 " in done.stdout, done.stdout + done.stderr


def test_every_pass_has_its_tests_and_those_of_its_errors() -> None:
    stems = {name.removeprefix("hostcall-") for name in hostcall_mlir.PASSES}
    assert {f"{stem}{end}.mlir" for stem in stems for end in ("", "-errors")} <= {*FILES}


@pytest.mark.parametrize("name", [n for n in hostcall_mlir.PASSES if n != "hostcall-check"])
def test_documentation_of_a_pass_shows_what_it_does(name: str) -> None:
    match = _BEFORE_AND_AFTER.search(section(name))
    assert match is not None
    before, pipeline, after = match.groups()
    assert pipeline.startswith(name)
    without_places = f"{pipeline},strip-debuginfo"
    done = hostcall_mlir.transform(before, without_places)
    assert done == hostcall_mlir.transform(after, "strip-debuginfo")


@pytest.mark.parametrize("name", hostcall_mlir.PASSES)
def test_documentation_of_a_pass_is_from_its_tests_and_lists_its_options(name: str) -> None:
    stem = name.removeprefix("hostcall-")
    tests = [(TESTS / f"{stem}{end}.mlir").read_text() for end in ("", "-errors")]
    example = re.findall(r"```mlir\n(.*?)```", section(name), re.S)[0]
    assert any(example in text for text in tests)
    options = hostcall_mlir.PASSES[name].options
    assert [option for option in options if f"| `{option}` |" not in section(name)] == []


def section(name: str) -> str:
    """The section of a pass in docs/passes.md."""
    page = (ROOT / "docs" / "passes.md").read_text()
    return page[page.index(f"## `{name}`") :].partition("\n## ")[0]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_package_never_imports_tensorflow_or_hostcall() -> None:
    code = (
        "import sys, hostcall_mlir.opt; "
        "print([name for name in ('tensorflow', 'hostcall', 'jax') if name in sys.modules])"
    )
    done = python("-c", code)
    assert done.stdout == "[]\n", done.stderr


def test_without_jaxlib_the_error_says_what_to_install() -> None:
    done = python("-c", "import sys; sys.modules['jaxlib'] = None; import hostcall_mlir")
    assert "ImportError: hostcall_mlir needs the MLIR of jaxlib" in done.stderr
    assert "pip install 'hostcall[jax]'" in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    done = python("-m", "hostcall_mlir.opt", "--version")
    assert done.stdout.endswith(f"version {metadata.version('hostcall')}\n")


def test_help_lists_the_passes_and_their_options() -> None:
    done = python("-m", "hostcall_mlir.opt", "--help")
    assert done.returncode == 0, done.stderr
    for entry in hostcall_mlir.PASSES.values():
        assert f"  {entry.name} " in done.stdout
        assert entry.summary in done.stdout
        for option, text in entry.options.items():
            assert re.search(rf"^ +{option} +{re.escape(text)}$", done.stdout, re.M)


def test_transform_raises_errors_with_their_places() -> None:
    text = "module {\n  stablehlo.custom_call @hostcall() {} : () -> ()\n}\n"
    with pytest.raises(hostcall_mlir.PassError, match=r"^x\.mlir:2:3: error: hostcall-check: api_"):
        hostcall_mlir.transform(text, "hostcall-check", source="x.mlir")


def test_transform_says_where_text_is_no_mlir() -> None:
    with pytest.raises(hostcall_mlir.PassError, match=r"^x\.mlir:2:8: error: custom op 'op' is"):
        hostcall_mlir.transform("module {\n  %0 = op\n}", "", source="x.mlir")

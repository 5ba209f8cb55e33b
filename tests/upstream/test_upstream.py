"""tests.upstream: that `make upstream` tells apart what differs, crashes and hangs."""

import dataclasses
import textwrap
from importlib import metadata
from pathlib import Path

import pytest

from tests.upstream.__main__ import compare, main
from tests.upstream.known_differences import KNOWN_DIFFERENCES
from tests.upstream.running import WHOLE_FILE, run
from tests.upstream.suites import CALLING_PYTHON, COMPILING, Suite, suites

SUITE = Suite("jax", "tests/written_test.py")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source tree with the version of JAX that is installed, and no test file yet."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax/version.py").write_text(f'_version = "{metadata.version("jax")}"\n')
    (tmp_path / "tests").mkdir()
    return tmp_path


def write(source: Path, body: str) -> None:
    text = "import os, sys, threading, unittest\n\nclass T(unittest.TestCase):\n"
    (source / SUITE.file).write_text(text + textwrap.indent(textwrap.dedent(body), "  "))


def kinds(source: Path, limit: float = 60.0) -> dict[str, str]:
    found = run(SUITE, str(source), hostcall=False, limit=limit)
    return {test.rpartition(".")[2]: outcome.kind for test, outcome in found.items()}


def test_a_test_that_ends_the_process_or_hangs_does_not_take_the_others_along(source: Path) -> None:
    write(
        source,
        """
        def test_a(self): os._exit(3)
        def test_b(self): pass
        def test_c(self): threading.Event().wait()
        def test_d(self): self.fail("so")
        def test_e(self): self.skipTest("why")
        def test_f(self):
            with self.subTest("one"): raise KeyError
            with self.subTest("two"): pass
        """,
    )
    assert kinds(source, limit=5.0) == {
        "test_a": "ended the process with 3",
        "test_b": "passed",
        "test_c": "took too long",
        "test_d": "failed with AssertionError",
        "test_e": "skipped",
        "test_f": "failed with KeyError",
    }


def test_a_file_that_cannot_be_imported_is_an_outcome(source: Path) -> None:
    write(source, "import nothing_of_that_name")
    found = run(SUITE, str(source), hostcall=False)
    assert found[WHOLE_FILE].kind == "ended the process with 1"
    assert "nothing_of_that_name" in found[WHOLE_FILE].detail
    summary, (difference,) = compare(SUITE, str(source))
    assert summary == "cannot be run"
    assert "nothing_of_that_name" in difference


def test_what_comes_out_in_another_way_with_hostcall_differs(source: Path) -> None:
    write(
        source,
        """
        def test_fails_with_it(self): assert "hostcall" not in sys.modules, "it is there"
        def test_fails_always(self): self.fail()
        def test_passes(self): pass
        """,
    )
    summary, differences = compare(SUITE, str(source))
    assert summary == "2 failed with AssertionError, 1 passed"
    (difference,) = differences
    assert "DIFFERS: upstream_written_test.T.test_fails_with_it" in difference
    assert "without hostcall: passed" in difference
    assert "with it: failed with AssertionError" in difference
    assert "it is there" in difference


def test_a_known_difference_is_none(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("test_differs", "test_comes_out_the_same")
    known = {f"upstream_written_test.T.{name}": "a reason" for name in names}
    monkeypatch.setattr("tests.upstream.__main__.KNOWN_DIFFERENCES", known)
    write(
        source,
        """
        def test_differs(self): assert "hostcall" not in sys.modules
        def test_comes_out_the_same(self): pass
        """,
    )
    summary, (difference,) = compare(SUITE, str(source))
    assert summary.endswith("1 of them known to differ")
    assert "DIFFERS NO MORE: upstream_written_test.T.test_comes_out_the_same" in difference


def test_the_page_names_the_known_differences() -> None:
    page = (Path(__file__).parents[2] / "docs/upstream-tests.md").read_text(encoding="utf-8")
    for test, reason in KNOWN_DIFFERENCES.items():
        assert f"`{test.rpartition('.')[2]}`" in page
        assert reason.partition(";")[0].removeprefix("expects that ") in " ".join(page.split())


def test_of_a_large_file_only_what_compiles_is_run(source: Path) -> None:
    write(
        source,
        """
        def test_compiles(self): "jit_compile=True"
        def test_does_not(self): pass
        """,
    )
    found = run(dataclasses.replace(SUITE, tests=COMPILING), str(source), hostcall=False)
    assert [test.rpartition(".")[2] for test in found] == ["test_compiles"]


def test_of_a_large_file_only_what_calls_python_is_run(source: Path) -> None:
    write(
        source,
        """
        def helper(self): "script_ops.py_func"
        def test_by_a_helper(self): self.helper()
        def test_itself(self): "numpy_function"
        def test_neither(self): pass
        """,
    )
    found = run(dataclasses.replace(SUITE, tests=CALLING_PYTHON), str(source), hostcall=False)
    names = [test.rpartition(".")[2] for test in found]
    assert names == ["test_by_a_helper", "test_itself"]


def test_a_difference_is_the_exit_status(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = suites(["jax"], "")[0]
    write(source, "def test(self): assert 'hostcall' not in sys.modules")
    (source / SUITE.file).rename(source / first.file)
    assert main(["--jax", str(source), "--only", first.title]) == 1
    assert "1 of 1 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "problem"),
    [('_version = "0.0.1"', "has jax 0.0.1, and installed is"), ("", "does not tell the version")],
)
def test_a_source_tree_of_another_version_is_refused(
    source: Path, capsys: pytest.CaptureFixture[str], version: str, problem: str
) -> None:
    (source / "jax/version.py").write_text(version)
    with pytest.raises(SystemExit):
        main(["--jax", str(source)])
    assert problem in capsys.readouterr().err


def test_a_folder_without_sources_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--tensorflow", str(tmp_path)])
    assert "is no source tree of tensorflow" in capsys.readouterr().err


def test_a_name_that_no_file_has_is_no_success(source: Path) -> None:
    assert main(["--jax", str(source), "--only", "no such file"]) == 1

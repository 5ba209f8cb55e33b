"""tests.upstream: that `python -m tests.upstream` tells apart what differs, crashes and hangs."""

import dataclasses
import itertools
import textwrap
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.helpers import assert_says
from tests.upstream import running
from tests.upstream.__main__ import compare, main
from tests.upstream.running import WHOLE_FILE, known_differences, run
from tests.upstream.suites import CALLING_PYTHON, COMPILING, Suite, suites

SUITE = Suite("jax", "tests/written_test.py")
TEXT = "import os, sys, threading, unittest\n\nclass T(unittest.TestCase):\n"

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the tests of a source tree that has the installed JAX's version; return its path."""
    for file in ("jax/version.py", SUITE.file):
        (tmp_path / file).parent.mkdir()
    (tmp_path / "jax/version.py").write_text(f'_version = "{metadata.version("jax")}"\n')

    def write(body: str) -> str:
        (tmp_path / SUITE.file).write_text(TEXT + textwrap.indent(textwrap.dedent(body), "  "))
        return str(tmp_path)

    return write


def kinds(source: str, limit: float = 60.0, suite: Suite = SUITE) -> dict[str, str]:
    found = run(suite, source, hostcall=False, limit=limit)
    return {test.rpartition(".")[2]: outcome.kind for test, outcome in found.items()}


def test_a_test_that_ends_the_process_or_hangs_does_not_take_the_others_along(write: Write) -> None:
    source = write("""
        def test_a(self): os._exit(3)
        def test_b(self): pass
        def test_c(self): threading.Event().wait()
        def test_d(self): self.fail("so")
        def test_e(self): self.skipTest("why")
        def test_f(self):
            with self.subTest("one"): raise KeyError
            with self.subTest("two"): pass
    """)
    assert kinds(source, limit=5.0) == {
        "test_a": "ended the process with 3",
        "test_b": "passed",
        "test_c": "took too long",
        "test_d": "failed with AssertionError",
        "test_e": "skipped",
        "test_f": "failed with KeyError",
    }


def test_a_file_that_cannot_be_imported_is_an_outcome(write: Write) -> None:
    source = write("import nothing_of_that_name")
    found = run(SUITE, source, hostcall=False)
    assert found[WHOLE_FILE].kind == "ended the process with 1"
    assert "nothing_of_that_name" in found[WHOLE_FILE].detail
    summary, (difference,) = compare(SUITE, source)
    assert summary == "cannot be run"
    assert "nothing_of_that_name" in difference


def test_what_comes_out_in_another_way_with_hostcall_differs_unless_it_is_known(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, names = suites(["jax"], "")[0], ("test_differs_as_known", "test_comes_out_the_same")
    module = Path(first.file).stem
    known = {"a reason": {first.file: [f"upstream_{module}.T.{name}" for name in names]}}
    monkeypatch.setattr(running, "known_differences", {"imported": known}.get)
    source = write("""
        def test_fails_with_it(self): assert "hostcall" not in sys.modules, "it is there"
        def test_fails_always(self): self.fail()
        def test_passes(self): pass
        def test_differs_as_known(self): assert "hostcall" not in sys.modules
        def test_comes_out_the_same(self): pass
    """)
    Path(source, SUITE.file).rename(Path(source, first.file))
    assert main(["--jax", source, "--only", first.title]) == 1
    summary, *lines, last = capsys.readouterr().out.splitlines()
    came = "3 failed with AssertionError, 2 passed, 1 of them known to differ"
    assert summary == f"{first.title}: {came}"
    assert last == "1 of 1 differ"
    text = "\n".join(lines)
    assert text.count("DIFFERS") == 2
    assert f"DIFFERS NO MORE: upstream_{module}.T.test_comes_out_the_same" in text
    assert_says(
        text,
        f"DIFFERS: upstream_{module}.T.test_fails_with_it",
        "without hostcall: passed",
        "with it: failed with AssertionError",
        "it is there",
    )


def test_the_page_names_the_known_differences() -> None:
    page = (Path(__file__).parents[2] / "docs/upstream-tests.md").read_text(encoding="utf-8")
    for reason, files in known_differences("imported").items():
        for test in itertools.chain(*files.values()):
            assert f"| `{test.rpartition('.')[2]}` | {reason} |" in page


def test_of_a_large_file_only_what_compiles_or_calls_python_is_run(write: Write) -> None:
    source = write("""
        def helper(self): "script_ops.py_func"
        def test_by_a_helper(self): self.helper()
        def test_compiles(self): "jit_compile=True"
        def test_itself(self): "numpy_function"
        def test_neither(self): pass
    """)
    for tests, expected in (
        (COMPILING, ["test_compiles"]),
        (CALLING_PYTHON, ["test_by_a_helper", "test_itself"]),
    ):
        assert list(kinds(source, suite=dataclasses.replace(SUITE, tests=tests))) == expected


def test_a_name_that_no_file_has_is_no_success(write: Write) -> None:
    assert main(["--jax", write(""), "--only", "no such file"]) == 1

"""tests.upstream: that `--compiled` compiles all, and tells what differs."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.upstream import compiled, running
from tests.upstream.compiled import compare, report
from tests.upstream.running import known_differences
from tests.upstream.suites import Suite

SUITE = Suite("tensorflow", "tensorflow/python/kernel_tests/strings_ops/written_test.py", "v2")
TEXT = """
import os
import tensorflow as tf

def is_compiled():
    return tf.function(lambda: 1)._jit_compile

class T(tf.test.TestCase):
"""

# A process of its own has a server of processes of its own, which has imported TensorFlow and would
# stay in this one for all later tests.
in_its_own_process = pytest.mark.runs_in("fresh_python", limit=300.0)


def write(folder: str, body: str) -> None:
    """Write the tests of a source tree of TensorFlow's; the journals lie beside it."""
    compiled.JOURNALS = Path(folder)
    file = compiled.JOURNALS / SUITE.file
    file.parent.mkdir(parents=True)
    file.write_text(TEXT + textwrap.indent(textwrap.dedent(body), "    "))


@in_its_own_process
def test_all_is_compiled_and_what_fails_or_ends_its_process_then_differs(tmp_path: str) -> None:
    names = ("test_f_fails_of_old", "test_g_passes_again")
    known = {"a reason": {SUITE.file: [f"upstream_written_test.T.{name}" for name in names]}}
    running.known_differences = {"compiled": known}.get  # type: ignore[assignment]
    write(
        tmp_path,
        """
        def test_a_passes(self): self.assertEqual(3, tf.add(1, 2).numpy())
        def test_b_ends_the_process(self):
            if is_compiled(): os._exit(3)
        def test_c_fails(self): self.assertFalse(is_compiled(), tf.add(1, 2))
        def test_d_fails_with_stock_tensorflow(self): self.fail(tf.add(1, 2))
        def test_e_calls_nothing(self): pass
        def test_f_fails_of_old(self): self.assertFalse(is_compiled(), tf.add(1, 2))
        def test_g_passes_again(self): tf.add(1, 2)
        def test_h_function(self): self.assertAllEqual(2, tf.function(lambda x: x + 1)(1))
        def test_i_says_no(self):
            self.assertFalse(tf.function(lambda: 1, jit_compile=False)._jit_compile)
        def test_j_gradient(self):
            with tf.GradientTape() as tape:
                tape.watch(x := tf.constant([3.0]))
                y = tf.square(x)
            self.assertAllEqual([6.0], tape.gradient(y, x))
        def test_k_string(self): self.assertEqual(b"ab", tf.strings.join(["a", "b"]).numpy())
        def test_l_lists_of_inputs(self):
            self.assertAllEqual([[1, 2], [3, 4]], tf.concat([[[1], [3]], [[2], [4]]], axis=1))
    """,
    )
    result = compare(SUITE, tmp_path)
    files, tests, calls, *outcomes = result.row()
    assert (files, tests, outcomes) == (1, 9, [5, 1, 3])
    assert calls >= 11
    ends, fails, mended = result.differences
    assert "DIFFERS: upstream_written_test.T.test_b_ends_the_process" in ends
    assert "compiled with hostcall: ended the process with 3" in ends
    assert "compiled without it: ended the process with 3" in ends
    assert "DIFFERS: upstream_written_test.T.test_c_fails" in fails
    assert "compiled with hostcall: failed with AssertionError" in fails
    assert "DIFFERS NO MORE: upstream_written_test.T.test_g_passes_again" in mended


@in_its_own_process
def test_a_run_that_was_ended_goes_on_where_it_was(tmp_path: str) -> None:
    write(
        tmp_path,
        """
        def test_a(self): tf.add(1, 2)
        def test_b(self): tf.add(1, 2)
    """,
    )
    lines = [
        {"begins": "upstream_written_test.T.test_a"},
        {"ends": "upstream_written_test.T.test_a", "outcome": "as before", "detail": ""},
        {"begins": "upstream_written_test.T.test_b"},
    ]
    journal = Path(tmp_path, f"{SUITE.file.replace('/', '.')}.compiled.jsonl")
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (difference,) = compare(SUITE, tmp_path).differences
    assert "test_a\n    compiled with hostcall: as before" in difference


def test_a_difference_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert report({"strings": [1, 3, 1200, 2, 1, 0]}) == 0
    assert "| strings | 1 | 3 | 1,200 | 2 | 1 | 0 |" in capsys.readouterr().out
    assert report({"strings": [1, 3, 4, 2, 0, 1], "sparse": [1, 3, 4, 3, 0, 0]}) == 1
    assert "| all | 2 | 6 | 8 | 5 | 0 | 1 |" in capsys.readouterr().out
    assert report({}) == 1


def test_the_page_lists_the_known_differences() -> None:
    page = (Path(__file__).parents[2] / "docs/upstream-tests.md").read_text(encoding="utf-8")
    for reason, files in known_differences("compiled").items():
        assert f"| {reason} | {sum(map(len, files.values()))} |" in page

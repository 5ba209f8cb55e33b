"""A process that exits while calls are under way: status 0, and no message."""

import os

import pytest

from tests.support.native.frames import run_python


def run(*arguments: str) -> tuple[int, str, str]:
    # A thread that Python ends leaves its objects behind, whoever started it.
    options = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
    done = run_python("-m", "tests.support.native.exit_scenarios", *arguments, ASAN_OPTIONS=options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "where",
    [
        "function",
        "array",
        "repr",
        "exception",
        "drop",
        "drop of too many results",
        "drop of a local",
        "copy",
        "host_function",
        "to_arrays",
        "title",
        "description",
    ],
)
def test_an_exit_with_a_call_in_flight(where: str) -> None:
    assert run(where) == (0, "exiting\n", "")


@pytest.mark.parametrize("pool", [(), ("with a pool",)], ids=["no pool", "pool"])
def test_a_call_after_the_interpreter(pool: tuple[str, ...]) -> None:
    code, output, errors = run("after", *pool)
    assert (code, errors) == (0, "")
    assert output.startswith("after the interpreter: 9 A compiled program called back into Python")

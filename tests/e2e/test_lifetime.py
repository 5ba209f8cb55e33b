"""Nothing is left of functions that are gone, nor of calls whose gradient nobody can ask for.

Each count is measured in a process that is warm, and compared with what TensorFlow itself leaves.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import lifetime_cases as cases
from tests.support.stress.processes import Worker

# Bytes for each call. TensorFlow alone leaves 39,000 of an eager py_function; an entry too much in
# a table shows with 200 or more; the allocator is good for less than 20.
FLAT = 100.0

# Bytes for each function. A graph that is not freed has 45,000; TensorFlow leaves 6,000 of a loop.
FLAT_FUNCTIONS = 15_000.0

# By how much a compiled program with a callback may be larger than an empty one: TensorFlow's cache
# keeps both for ever.
CALLBACK_IN_A_PROGRAM = 40_000.0


@pytest.fixture(scope="module")
def ours() -> Iterator[Worker]:
    with contextlib.closing(Worker("import hostcall")) as worker:
        # A process that has just started grows by 80 bytes for each of its first 1,200 calls, by 15
        # for each of the next, and then no more.
        left(worker, cases.by_py_function, cases.eagerly, 1_200)
        yield worker


def left(worker: Worker, program: Any, way: Any, count: int) -> dict[str, Any]:
    return worker.run(cases.left_of, program.__name__, way.__name__, count)


def nothing_is_left(result: dict[str, Any], flat: float) -> None:
    assert result["after"] == result["before"]
    assert result["bytes"] < flat


TAPE, GRADIENT = cases.eagerly_under_a_tape, cases.eagerly_with_a_gradient
EAGER = [
    *((cases.by_py_function, way) for way in (cases.eagerly, TAPE, GRADIENT)),
    (cases.by_numpy_function, cases.eagerly),
    (cases.by_py_func, TAPE),
    (cases.by_structured_numpy_function, cases.eagerly),
    (cases.by_remembered_function, cases.eagerly),
    (cases.by_callback, cases.eagerly),
    (cases.by_named_callback, cases.eagerly),
    (cases.by_eager_callback, TAPE),
    *((cases.by_callback_with_gradient, way) for way in (TAPE, GRADIENT)),
]


@pytest.mark.parametrize(("program", "way"), EAGER)
def test_eager_calls_of_fresh_functions(ours: Worker, program: Any, way: Any) -> None:
    nothing_is_left(left(ours, program, way, 1_200), FLAT)


PROGRAMS = [
    cases.by_py_function, cases.by_numpy_function, cases.by_callback,
    cases.by_callback_with_gradient, cases.by_declared_function, cases.by_remembered_function,
    cases.in_a_loop, cases.in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("way", [cases.jitted_and_traced, cases.run])
def test_functions_that_are_traced_and_dropped(ours: Worker, program: Any, way: Any) -> None:
    nothing_is_left(left(ours, program, way, 60), FLAT_FUNCTIONS)


@pytest.mark.full_run("takes long: hundreds of programs")
@pytest.mark.parametrize("program", [cases.by_py_function, cases.in_a_branch])
def test_functions_that_are_differentiated_and_dropped(ours: Worker, program: Any) -> None:
    # With the first ones TensorFlow's own memory grows, without hostcall as well: 14 KB for each.
    left(ours, program, cases.run_with_a_gradient, 60)
    nothing_is_left(left(ours, program, cases.run_with_a_gradient, 60), FLAT_FUNCTIONS)


newer = pytest.mark.tensorflow("2.21", "a program leaves more of TensorFlow's memory there")
DIFFERENTIABLE = (cases.by_py_function, cases.by_callback_with_gradient)
# Programs, ways to call them, and how many programs of XLA's each makes.
COMPILED = [
    *((program, cases.jitted_and_run, 1) for program in PROGRAMS[:5]),
    *((program, cases.jitted_and_run_in_a_plain_function, 1) for program in DIFFERENTIABLE),
    *(
        pytest.param(program, cases.jitted_and_run_with_a_gradient, 2, marks=newer)
        for program in DIFFERENTIABLE
    ),
]


@pytest.fixture(scope="module")
def empty() -> Iterator[Callable[[Any, Any], float]]:
    """The memory that TensorFlow leaks for a function with an identity in place of the callback."""
    with contextlib.closing(Worker()) as stock:

        @functools.cache
        def bytes_left(with_gradient: bool, way: Any) -> float:
            identity = cases.by_custom_gradient if with_gradient else cases.by_tensorflow
            return float(left(stock, identity, way, 30)["bytes"])

        yield lambda program, way: bytes_left(program is cases.by_callback_with_gradient, way)


@pytest.mark.parametrize(("program", "way", "programs"), COMPILED)
def test_functions_that_are_compiled_and_dropped(
    ours: Worker, empty: Callable[..., float], program: Any, way: Any, programs: int
) -> None:
    limit = empty(program, way) + programs * CALLBACK_IN_A_PROGRAM
    nothing_is_left(left(ours, program, way, 30), limit)


@pytest.mark.parametrize("program", [cases.by_py_function, cases.in_a_loop])
@pytest.mark.parametrize("way", [cases.jitted_and_run, cases.jitted_and_run_in_a_plain_function])
def test_no_function_stays_in_the_library(ours: Worker, program: Any, way: Any) -> None:
    assert ours.run(cases.left_in_the_library, program.__name__, way.__name__) == []


NESTED = 3.0 * FLAT


def check_calls(
    worker: Worker, program: Any, way: Any, jit_compile: bool, count: int, flat: float
) -> None:
    names = program.__name__, way.__name__
    result = worker.run(cases.left_of_calls, *names, jit_compile, count)
    nothing_is_left(result, flat)


@pytest.mark.full_run("takes long: thousands of runs")
@pytest.mark.parametrize(("jit_compile", "count"), [(True, 3_000), (False, 1_000)])
def test_passes_under_a_tape(ours: Worker, jit_compile: bool, count: int) -> None:
    check_calls(ours, cases.by_py_function, TAPE, jit_compile, count, FLAT)


@pytest.mark.parametrize(
    ("program", "jit_compile"),
    [(cases.in_a_branch, True), (cases.in_a_branch, False), (cases.in_a_loop, False)],
)
def test_passes_of_loops_and_branches_under_a_tape(
    ours: Worker, program: Any, jit_compile: bool
) -> None:
    check_calls(ours, program, TAPE, jit_compile, 400, NESTED)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_passes_under_a_tape_that_fail(ours: Worker, jit_compile: bool) -> None:
    """TensorFlow itself leaves some memory of each failure."""
    check_calls(ours, cases.failing, TAPE, jit_compile, 100, math.inf)


each_nest = pytest.mark.parametrize(
    "program", [cases.by_py_function, cases.in_a_branch, cases.in_a_loop]
)


@each_nest
def test_passes_without_a_tape_after_one_with_a_gradient(ours: Worker, program: Any) -> None:
    check_calls(ours, program, cases.eagerly, False, 400, NESTED)


@each_nest
def test_runs_of_a_v1_graph_without_its_gradient(ours: Worker, program: Any) -> None:
    nothing_is_left(ours.run(cases.left_of_session_runs, program.__name__, 400), NESTED)

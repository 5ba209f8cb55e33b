"""Tests that our callbacks keep the promises of JAX's own about runs, threads and lifetimes."""

import gc
import threading
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core, dispatch

import hostcall.jax
from hostcall_runtime import _library
from tests.support.errors import DetailedError
from tests.support.fate import Fate
from tests.support.installed import TENSORFLOW
from tests.support.jax.flavours import each_effect, each_flavour
from tests.support.jax.helpers import X, each_mode, failure, run_python, struct
from tests.support.threads import PATIENCE, in_threads, running

call = hostcall.jax.call

# So large that XLA divides the work among the threads that callbacks run on, too.
LARGE = jnp.ones([300, 300])


@each_flavour
def test_callbacks_that_compute_with_jax(flavour: Any) -> None:
    inner = jax.jit(lambda x: jnp.tanh(x @ x).sum() + jnp.linalg.svd(x[:20, :20])[1].sum())

    def computed(x: Any) -> Any:
        return np.asarray(inner(jnp.asarray(x)))

    program = jax.jit(lambda x: sum(flavour(computed, struct([]), x * i) for i in range(3)))
    expected = sum(float(inner(LARGE * i)) for i in range(3))
    results = [program(LARGE) for _ in range(4)]  # all under way at once
    np.testing.assert_allclose([float(y) for y in results], [expected] * 4, rtol=1e-5)


@pytest.mark.cpu("a program on a GPU has it to itself")
def test_eager_calls_that_wait_for_jax() -> None:
    total = jnp.zeros_like(LARGE)
    for _ in range(5):
        total = total + call(lambda x: jax.block_until_ready(jnp.asarray(x) @ x), LARGE, LARGE)
    assert float(total[0, 0]) == 5 * 300


@pytest.mark.cpu("a program on a GPU has it to itself")
@each_effect
def test_a_loop_whose_callbacks_wait_for_jax(flavour: Any) -> None:
    inner = jax.jit(lambda x: x @ x)

    def wait(x: Any) -> None:
        np.asarray(inner(x))

    def program(x: Any) -> Any:
        iteration = lambda _, x: [flavour(wait, None, x), x @ x / 300][1]  # noqa: E731
        return lax.fori_loop(0, 5, iteration, x)

    for result in [program(LARGE) for _ in range(3)]:
        np.testing.assert_array_equal(result, LARGE)


@each_flavour
def test_callbacks_that_run_programs_with_callbacks(flavour: Any) -> None:
    inner = jax.jit(lambda x: flavour(lambda v: v + np.float32(1), x, x))
    program = jax.jit(lambda x: flavour(lambda v: np.asarray(inner(v)) * 2, x, x))
    np.testing.assert_array_equal(program(X), 2 * X + 2)


def test_callbacks_that_put_arrays_on_devices_and_wait_for_effects() -> None:
    def moved(v: Any) -> Any:
        jax.effects_barrier()
        return jax.device_put(v, jax.devices()[0]) + 1

    np.testing.assert_array_equal(jax.jit(lambda x: call(moved, x, x))(X), X + 1)


def test_many_threads_run_one_program() -> None:
    program = jax.jit(
        lambda x: (
            call(lambda v: v * 2, x, x)
            + call(lambda v: v * 3, x, x, ordered=True)
            + call(lambda v: v * 4, x, x, pure=True)
        )
    )

    def run(number: int) -> None:
        for _ in range(10):
            np.testing.assert_array_equal(program(X + number), 9 * (X + number))

    in_threads(8, run)


def test_each_thread_compiles_its_own() -> None:
    def run(number: int) -> None:
        for _ in range(3):
            program = jax.jit(lambda x: call(lambda v: v + number, x, x))
            np.testing.assert_array_equal(program(X), X + number)

    in_threads(4, run)


@each_effect
def test_the_barrier_waits_for_effects(flavour: Any) -> None:
    go_on = threading.Event()
    log: list[float] = []

    def slow(x: Any) -> None:
        assert go_on.wait(PATIENCE)
        log.append(float(x))

    program = jax.jit(lambda x: [flavour(slow, None, x), x + 1][1])
    # A thread of its own: XLA may run so small a program on the thread that calls it.
    with running([lambda: [program(2.0), jax.effects_barrier()]], go_on):
        assert log == []
    assert log == [2]


@each_effect
def test_donated_arguments(flavour: Any) -> None:
    seen: list[Any] = []
    program = jax.jit(
        lambda x, y: [flavour(lambda v: seen.append(v.tolist()), None, x), x + y][1],
        donate_argnums=0,
    )
    np.testing.assert_array_equal(program(X + 0, X), 2 * X)
    jax.effects_barrier()
    assert seen == [X.tolist()]


@pytest.mark.cpu("programs on a GPU have copies of their arguments")
def test_the_memory_of_an_argument_can_be_used_again_when_the_call_returns() -> None:
    def later(x: Any) -> Any:
        matrix = jnp.full_like(LARGE, 1 / 300) + x[0] * 1e-9
        matrix = lax.fori_loop(0, 10, lambda _, matrix: matrix @ matrix, matrix)
        return x + matrix[0, 0] * 0 + call(lambda x: x, struct([16]), x)

    program = jax.jit(later)
    memory = np.zeros(16 * 4 + 64, np.uint8)
    begin = -memory.ctypes.data % 64  # JAX copies arrays that begin elsewhere
    x = memory[begin : begin + 16 * 4].view(np.float32)
    for value in (1.0, 2.0):  # the second time nothing is compiled
        x[:] = value
        result = program(x)
        x[:] = -1.0
        np.testing.assert_array_equal(result, np.full(16, 2 * value))


@each_flavour
def test_a_function_that_nobody_holds_during_the_run(flavour: Any) -> None:
    class Adding:
        def run(self, x: Any) -> Any:
            return lax.fori_loop(0, 10, lambda _, y: flavour(self.add, y, y), x)

        def add(self, y: Any) -> Any:
            gc.collect()
            return y + np.float32(1)

    np.testing.assert_array_equal(jax.jit(Adding().run)(X), X + 10)


def test_a_program_that_is_dropped_while_it_runs() -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(v: Any) -> Any:
        started.set()
        assert go_on.wait(PATIENCE)
        return v + 1

    results: list[Any] = []
    run = lambda: results.append(jax.jit(lambda x: call(slow, x, x))(X))  # noqa: E731
    with running([run], go_on):
        assert started.wait(PATIENCE)
        jax.clear_caches()
        gc.collect()
    np.testing.assert_array_equal(results[0], X + 1)


@each_mode
@each_flavour
def test_arguments_and_results_die_with_the_call(mode: Any, flavour: Any) -> None:
    fates: list[Fate] = []

    def noted(v: Any) -> Any:
        result = v + np.float32(1)
        fates.extend([Fate(v), Fate(result)])
        return result

    program = mode(lambda x: flavour(noted, x, x))
    for _ in range(3):
        program(X).block_until_ready()
    assert len(fates) == 6
    for fate in fates:
        fate.assert_goes()


@each_flavour
def test_a_program_works_after_it_has_failed(flavour: Any) -> None:
    def sometimes(x: Any) -> Any:
        if x[0] < 0:
            raise DetailedError("the reason")
        return x

    program = jax.jit(lambda x: flavour(sometimes, x, x))
    assert "DetailedError: the reason" in str(failure(program, X - 1))
    np.testing.assert_array_equal(program(X), X)


def test_tokens_of_a_failed_program_fail_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX keeps such tokens on a GPU, where it does not wait for a program."""
    program = jax.jit(lambda x: hostcall.jax.call(np.sin, x, x, ordered=True))
    program(X)
    failed = mock.Mock()
    failed.block_until_ready.side_effect = jax.errors.JaxRuntimeError("before")
    tokens = dispatch.runtime_tokens.current_tokens
    for effect in [*tokens]:
        monkeypatch.setitem(tokens, effect, core.Token(failed))
    assert "before" in str(failure(program, X))
    np.testing.assert_array_equal(program(X), np.sin(X))


@each_flavour
def test_programs_with_calls_are_not_for_other_processes(flavour: Any) -> None:
    program = jax.jit(lambda x: flavour(np.sin, x, x))
    for checks in ([], [jax.export.DisabledSafetyCheck.custom_call("hostcall")]):
        with pytest.raises(
            ValueError, match=r"called at (?s:.*)hostcall\.export\(hostcall\.jax"
        ) as e:
            jax.export.export(program, disabled_checks=checks)(X)
        assert type(e.value).__name__ == "NotExportableError"


@pytest.mark.cpu("JAX does not wait for programs on a GPU")
@each_mode
@each_flavour
def test_an_error_is_raised_where_nobody_waits(mode: Any, flavour: Any) -> None:
    program = mode(lambda x: flavour(lambda v: [][1], x, x))
    late = jax.jit(lambda x: jnp.tanh(x @ x)[:4, 0])
    for _ in range(3):
        with pytest.raises(jax.errors.JaxRuntimeError, match="IndexError"):
            program(late(LARGE))
    jax.effects_barrier()


runtime = _library.load("hostcall_runtime._runtime")


@pytest.mark.parametrize(("compiled", "pure"), [(True, False), (False, True)])
def test_a_function_lives_as_long_as_its_program(compiled: bool, pure: bool) -> None:
    class Doubled:
        def __call__(self, x: Any) -> Any:
            return x * np.float32(2)

    size = runtime.size()
    function = Doubled()
    fate = Fate(function)
    program: Any = jax.jit(lambda x, f=function: call(f, x, x, pure=pure))
    if compiled:
        program = program.lower(X).compile()
    del function
    jax.clear_caches()
    gc.collect()
    for _ in range(3):
        np.testing.assert_array_equal(program(X), 2 * X)
    del program
    jax.clear_caches()
    fate.assert_goes()
    assert runtime.size() <= size


GONE = """
import gc, importlib
import jax, numpy as np
import hostcall.jax
from hostcall.jax._lowering import Owned

x = np.ones(2, np.float32)
program = jax.jit(lambda x: hostcall.jax.call(np.sin, x, x)).lower(x).compile()
for owned in [one for one in gc.get_objects() if isinstance(one, Owned)]:
    owned.target = None
gc.collect()
for also in MODULES:
    importlib.import_module(also)
    try:
        jax.block_until_ready(program(x))
    except jax.errors.JaxRuntimeError as error:
        print(repr(str(error)))
"""


def test_a_function_that_is_gone_is_an_error_about_jax() -> None:
    modules = ["jax", "tensorflow"] if TENSORFLOW else ["jax"]
    said = run_python(GONE.replace("MODULES", repr(modules))).splitlines()
    assert ["tf.function" in error for error in said] == [False, True][: len(modules)]
    for error in said:
        assert "is gone" in error
        assert "what jax.jit" in error

"""hostcall.jax._patches: what is replaced of JAX, and what comes back."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall
import hostcall.jax
from hostcall.jax import _names, _patches, _primitive
from tests.support.fate import Fate
from tests.support.jax import stock_programs, stock_state
from tests.support.jax.helpers import X, run_python
from tests.support.stress.template import Template

call = hostcall.jax.call

pytestmark = pytest.mark.usefixtures("enabled_again")

STOCK_PROGRAMS = str(Path(stock_programs.__file__))


@pytest.fixture
def disabled() -> None:
    hostcall.disable()


@pytest.fixture(scope="module")
def changes(fresh_jax: Template) -> dict[str, list[str]]:
    """The differences of JAX from before the import of hostcall.jax, state by state."""
    ended = fresh_jax.run(stock_state.report)
    assert ended.status == 0, ended.said
    found: dict[str, list[str]] = json.loads(ended.printed.splitlines()[-1])
    return found


def _is_hostcalls(place: str) -> bool:
    """Return whether a place is an entry under a key of hostcall's own, used by hostcall alone."""
    effects = r"^jax\._src\.effects\.(?!control_flow)\w+\.(OrderedCall|Call|FireAndForget)Effect$"
    calls = ".hostcall", ".hostcall_fire_and_forget"
    return place.endswith((*calls, "._custom_callback.CUDA")) or bool(re.match(effects, place))


def _place(target: str) -> str:
    target = target.replace("jax.interpreters", "jax._src.interpreters")
    return target.replace("[", ".").replace("]", "").replace(": ", ".")


def test_the_table_has_all_that_the_import_replaces(changes: dict[str, list[str]]) -> None:
    replaced = {place for place in changes["imported"] if not _is_hostcalls(place)}
    assert replaced == {_place(patch.target) for patch in _patches.TABLE.patches}
    assert changes["enabled"] == changes["imported"]


def test_disabled_everything_of_jax_is_the_stock_object(changes: dict[str, list[str]]) -> None:
    assert [place for place in changes["disabled"] if not _is_hostcalls(place)] == []
    assert changes["disabled again"] == changes["disabled"]


def test_each_patch_has_a_reason_and_a_feature() -> None:
    assert all(patch.why for patch in _patches.TABLE.patches)
    features = {patch.feature for patch in _patches.TABLE.patches}
    assert features <= {name.feature for name in _names.NAMES}


# Addresses, and numbers that Python counts its objects with.
_UNSTABLE = re.compile(r"0x[0-9a-f]+|\b\d{12,}\b")


def _described(*modules: str) -> dict[str, dict[str, str]]:
    code = f"import runpy; runpy.run_path({STOCK_PROGRAMS!r}, run_name='__main__')"
    printed = run_python(code, IMPORTED=" ".join(modules)).splitlines()[-1]
    found: dict[str, dict[str, str]] = json.loads(_UNSTABLE.sub("N", printed))
    return found


@pytest.fixture(scope="module")
def described() -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """The descriptions of JAX programs without calls: without hostcall, and with hostcall.jax."""
    return _described(), _described("hostcall.jax")


@pytest.mark.parametrize("program", stock_programs.PROGRAMS)
def test_programs_without_calls_are_as_without_hostcall(program: str, described: Any) -> None:
    stock, ours = (each[program] for each in described)
    assert ours == stock
    assert ("error" in stock) == ("error" in program or "io_callback" in program)


def test_what_is_known_of_a_jaxpr_does_not_keep_it_alive() -> None:
    jaxpr = jax.make_jaxpr(jnp.sin)(1.0).jaxpr
    assert not _primitive.holds_call(jaxpr)
    fate = Fate(jaxpr)
    del jaxpr
    jax.clear_caches()
    fate.assert_goes()


@pytest.mark.usefixtures("disabled")
@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"pure": True}], ids=str)
def test_disabled_calls_work(options: dict[str, Any]) -> None:
    def step(carry: Any, value: Any) -> Any:
        return carry + call(np.negative, value, value, pure=True), None

    program = jax.jit(lambda x: (call(np.negative, x, x, **options), lax.scan(step, 0.0, x)[0]))
    for x in (X, X + 1):
        negative, total = program(x)
        np.testing.assert_array_equal(negative, -x)
        np.testing.assert_array_equal(total, -x.sum())


def _print_and_double(x: Any) -> Any:
    call(lambda _: None, None, x)
    return 2 * x


@pytest.mark.usefixtures("disabled")
@pytest.mark.parametrize(
    "program",
    [
        lambda x: lax.cond(x[0] > 0, _print_and_double, jnp.sin, x),
        lambda x: lax.while_loop(lambda v: v[0] < 3, lambda v: _print_and_double(v + 1), x),
        lambda x: lax.while_loop(lambda v: _print_and_double(v)[0] < 3, lambda v: v + 1, x),
        lambda x: lax.scan(lambda c, v: (_print_and_double(c), v), x, None, length=2),
    ],
    ids=["cond", "body", "condition", "scan"],
)
def test_disabled_calls_with_effects_are_refused_in_branches_and_loops(program: Any) -> None:
    with pytest.raises(
        NotImplementedError, match=r"Effects not supported in .*hostcall\.enable\(\)"
    ):
        jax.jit(program)(X)


def test_disabled_what_was_traced_before_loses_no_call_in_a_condition() -> None:
    program = lambda x: lax.while_loop(lambda v: _print_and_double(v) < 8, lambda v: v + 1, x)  # noqa: E731
    traced = jax.jit(program).trace(1)
    hostcall.disable()
    with pytest.raises(NotImplementedError, match=r"in the condition of a loop.*hostcall\.enable"):
        traced.lower()
    hostcall.enable()
    assert traced.lower().compile()(1) == 4


def test_what_is_compiled_goes_on_while_disabled() -> None:
    taken = []

    def step(carry: Any, value: Any) -> Any:
        return carry, call(lambda v: taken.append(float(v)), None, value)

    program = jax.jit(lambda x: lax.scan(step, 0.0, x)[0])
    program(X)
    hostcall.disable()
    program(X)
    jax.effects_barrier()
    assert sorted(taken) == sorted([*map(float, X)] * 2)


@pytest.mark.usefixtures("disabled")
def test_disabled_a_call_in_a_reducer_is_an_error() -> None:
    def add(a: Any, b: Any) -> Any:
        return call(np.add, a, a, b, pure=True)

    with pytest.raises(NotImplementedError, match=r"given to jax\.lax\.reduce, of which XLA"):
        jax.jit(lambda x: lax.reduce(x, 0.0, add, (0,)))(X)
    with pytest.raises(NotImplementedError, match=r"given to jax\.lax\.reduce_window, of which"):
        jax.jit(lambda x: lax.reduce_window(x, 0.0, add, (2,), (1,), "VALID"))(X)

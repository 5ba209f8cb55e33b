"""Programs with calls in JAX's cache on disk, over several processes, and as bytes."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import hostcall.jax
from hostcall.jax import _compilation
from tests.support.jax import disk_programs
from tests.support.jax.disk_programs import OTHERS, PROGRAMS
from tests.support.jax.helpers import X, assert_same, run_python

# Older versions of JAX write no programs with callbacks.
_KEEPS_CALLBACKS = jax.__version_info__ >= (0, 11)


def _run(directory: Path, names: list[str], **environment: str) -> dict[str, list[Any]]:
    code = "from tests.support.jax import disk_programs; "
    code += f"disk_programs.main({str(directory)!r}, {names!r})"
    told: dict[str, list[Any]] = json.loads(run_python(code, **environment))
    return told


def _entries(directory: Path) -> set[str]:
    return {name for name in os.listdir(directory) if name.endswith("-cache")}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcomes of all programs in three processes in turn, and the entries of the cache."""
    directory = tmp_path_factory.mktemp("cache")
    names = [*PROGRAMS, *OTHERS]
    first = _run(directory, names)
    after_first = _entries(directory)
    second = _run(directory, names)
    third = _run(directory, names[::-1])
    kept = [after_first, _entries(directory)]
    return {"first": first, "second": second, "third": third, "kept": kept}


@pytest.mark.parametrize("process", ["second", "third"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_later_process_finds_a_program(
    name: str, process: str, processes: dict[str, Any]
) -> None:
    *results, found = processes[process][name]
    *expected, found_first = processes["first"][name]
    assert results == expected
    assert not found_first
    assert found == _KEEPS_CALLBACKS


def test_the_programs_do_what_they_do_without_a_cache(processes: dict[str, Any]) -> None:
    first = processes["first"]
    assert first["pure"][0] == [-0.0, -1.0, -2.0, -3.0]
    assert first["with a side effect"][2] == [6.0, 6.0]
    assert first["structures"][0] == [0.0, 3.0, 6.0, 9.0]
    assert first["in a branch"][0] == [-0.0, -1.0, -2.0, -3.0]
    assert first["in a loop, in order"][2] == [6.0, -8.0, 6.0, -8.0]
    assert first["called twice"][0] == [[-0.0, -1.0, -2.0, -3.0], [-1.0, -2.0, -3.0, -4.0]]
    assert first["beside one another"][0] == [-3.0, -6.0, -9.0, -12.0]


@pytest.mark.parametrize("name", OTHERS)
def test_programs_of_functions_that_lie_nowhere_are_compiled_anew(
    name: str, processes: dict[str, Any]
) -> None:
    told = [processes[process][name] for process in ("first", "second", "third")]
    assert told[0] == told[1] == told[2]
    assert not told[0][-1]


def test_nothing_is_kept_that_nobody_finds(processes: dict[str, Any]) -> None:
    first, last = processes["kept"]
    assert last == first
    assert any("jit__of_a_branch" in name for name in first) == _KEEPS_CALLBACKS
    assert not any("jit__local" in name for name in first)


_IDS = r"""
import re
import jax
from tests.support.jax.disk_programs import PROGRAMS, X
for directory in [DIRECTORY, DIRECTORY, None]:
    jax.config.update("jax_compilation_cache_dir", directory)
    text = jax.jit(PROGRAMS["called twice"]).lower(X).as_text()
    print(*re.findall(r"callback = (\d+)", text))
    jax.clear_caches()
"""


def test_ids_of_calls_are_the_same_in_each_process(tmp_path: Path) -> None:
    code = _IDS.replace("DIRECTORY", repr(str(tmp_path)))
    first, second = (run_python(code).splitlines() for _ in range(2))
    assert first[:2] == second[:2]
    assert first[0] != first[1]  # none comes twice in a process
    assert first[2] != second[2]  # no cache is on


def test_which_functions_lie_where_another_process_finds_them() -> None:
    has_place = _compilation._has_place
    assert has_place(disk_programs.negate)
    assert has_place(json.dumps)
    assert not has_place(lambda x: x)
    assert not has_place(functools.partial(disk_programs.negate))
    assert not has_place(json.JSONEncoder().encode)
    assert not has_place(disk_programs.Doubling())


@pytest.mark.skipif(not _KEEPS_CALLBACKS, reason="JAX writes no programs with callbacks")
def test_a_program_whose_calls_overlap_is_another_one_where_hostcall_is_disabled(
    tmp_path: Path,
) -> None:
    name = "beside one another"
    first = _run(tmp_path, [name])
    disabled = _run(tmp_path, [name], HOSTCALL_DISABLE="1")
    assert disabled == first
    assert _run(tmp_path, [name])[name][-1]


CALLS: dict[str, Any] = {
    "pure": lambda x: hostcall.jax.call(np.sin, x, x, pure=True),
    "once": lambda x: hostcall.jax.call(np.sin, x, x),
    "ordered": lambda x: hostcall.jax.call(np.sin, x, x, ordered=True),
    "callback": lambda x: hostcall.callback(np.sin, result=lambda x: x)(x),
    "overlapping": lambda x: CALLS["pure"](x) + CALLS["pure"](2 * x),
}


@pytest.mark.parametrize("name", CALLS)
def test_programs_with_calls_are_refused(name: str) -> None:
    program = jax.jit(CALLS[name]).lower(X).compile()
    with pytest.raises(hostcall.NotExportableError) as raised:
        serialize_executable.serialize(program)
    said = str(raised.value)
    assert f"{Path(__file__).name}:" in said
    assert "hostcall.export(hostcall.jax.to_tf(program), spec)" in said
    assert program(X).shape == X.shape


def test_other_programs_are_as_before() -> None:
    program = jax.jit(jnp.sin).lower(X).compile()
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(program), execution_devices=jax.devices()[:1]
    )
    assert_same(loaded(X), program(X))

"""Random programs: values, calls and their order are those of the same program in Python."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.jax.helpers import eagerly
from tests.support.jax.random_programs import InJax, InPython, Program

INPUTS = [np.array(x, np.float32) for x in ([1, 5, 2], [7, 0, 4])]


def check(seed: int, size: int, mode: Any) -> None:
    program = Program(seed, size)
    compiled = mode(lambda x: program.run(InJax(), x))
    for x in INPUTS:
        expected, calls = program.run(InPython(), x), program.calls()
        result = np.asarray(compiled(jnp.asarray(x)))
        jax.effects_barrier()
        assert program.calls() == calls
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", [jax.jit, eagerly])
@pytest.mark.parametrize("seed", [0, 3, 4, 5, 6])  # which have all kinds of statements
def test_a_random_program_does_what_it_does_in_python(seed: int, mode: Any) -> None:
    check(seed, 10, mode)

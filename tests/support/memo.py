"""Helpers that the tests of `memo=` share."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import eagerly as eagerly
from tests.support.helpers import jitted, partitioned, plain

MODES = [eagerly, plain, jitted, partitioned]
each_mode = pytest.mark.parametrize("mode", MODES)
each_but_jitted = pytest.mark.parametrize("mode", [eagerly, plain, partitioned])


def counting(function: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """The function, and the list of the arguments of its calls."""
    calls: list[Any] = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    return counted, calls


def declared(function: Callable[..., Any], memo: Any = True, **said: Any) -> Any:
    """(program, calls): of one argument, and a result like it, if nothing else is said."""
    counted, calls = counting(function)
    hostcall.declare(counted, memo=memo, **{"result": lambda x: x, **said})
    return lambda x: tf.numpy_function(counted, [x], x.dtype), calls


def calls_in(program: Any, *args: Any) -> int:
    return str(program.experimental_get_compiler_ir(*args)(stage="hlo")).count('"hostcall"')

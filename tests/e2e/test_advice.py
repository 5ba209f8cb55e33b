"""The lines that the log and errors advise for unknown shapes work once they are filled in."""

import dataclasses
import inspect
import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

import hostcall
from hostcall._compiler import announcements
from tests.support.helpers import assert_same, failure, jitted, plain, to_numpy

COSTS = tf.constant([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])
matching = scipy.optimize.linear_sum_assignment
try:  # newer versions of SciPy tell the name of its first parameter, older ones do not
    PARAMETER = next(iter(inspect.signature(matching).parameters))
except ValueError:
    PARAMETER = "x"


@pytest.fixture(autouse=True)
def _told_anew(auto_route: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "_told", set())


@dataclasses.dataclass
class Case:
    """A function whose result has no known shape, and what goes into the blanks of the lines."""

    function: Callable[..., Any]
    tout: Any
    arguments: list[tf.Tensor]
    constants: list[str]
    rule: list[str]
    op: Any = tf.numpy_function


class Model:
    def widths(self, table: Any, margin: Any) -> Any:
        return table.max(0) + margin


model = Model()


def corners(tf: Any) -> Any:  # a name that the rule needs for itself
    return tf[:1, :1]


FLOAT = tf.float32
CASES = {
    "a scalar": Case(lambda table: table.sum(), FLOAT, [COSTS], [""], [""]),
    "no relation to the input": Case(
        lambda values, levels: np.quantile(values, levels).astype(np.float32),
        *(FLOAT, [COSTS, tf.constant([0.5])], ["1"], ["levels.shape[0]"]),
    ),
    "a matching": Case(
        matching, [tf.int64, tf.int64], [COSTS], ["2", "2"], [f"min({PARAMETER}.shape)"] * 2
    ),
    "a rank that is known": Case(
        corners, tf.TensorSpec([None, 1], FLOAT), [COSTS], ["1"], ["tf_.shape[0] - 1"]
    ),
    "one of two": Case(
        lambda table: (table[0], table),
        [tf.TensorSpec([3], FLOAT), FLOAT],
        [COSTS],
        ["2, 3"],
        ["*table.shape"],
    ),
    "a list of one": Case(lambda table: [table[0]], [FLOAT], [COSTS], ["3"], ["table.shape[1]"]),
    "a py_function": Case(
        lambda table: table * table, FLOAT, [COSTS], ["2, 3"], ["*table.shape"], op=tf.py_function
    ),
    "a method": Case(model.widths, FLOAT, [COSTS, tf.constant(1.0)], ["3"], ["table.shape[1]"]),
    "a lambda": Case(lambda a, b: a - b, FLOAT, [COSTS, COSTS], ["2, 3"], ["*a.shape"]),
    "a ufunc": Case(np.subtract, FLOAT, [COSTS, COSTS], ["2, 3"], ["*x1.shape"]),
}
# NumPy before 2.2, which is what TensorFlow 2.19 takes, does not name the parameters of its ufuncs.
named = pytest.mark.tensorflow("2.20", "NumPy does not name the parameters of its ufuncs")


def _program(case: Case, tout: Any = None, after: Callable[[Any], None] = lambda y: None) -> Any:
    def program(*arguments: tf.Tensor) -> Any:
        y = case.op(case.function, list(arguments), case.tout if tout is None else tout)
        after(y)
        return tf.nest.map_structure(lambda value: value + value, y)

    return program


def _logged(caplog: pytest.LogCaptureFixture, program: Any, arguments: list[tf.Tensor]) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hostcall"):
        jitted(program)(*arguments)
    messages = [r.getMessage() for r in caplog.records if r.name == "hostcall"]
    assert len(messages) <= 1
    return "".join(messages)


def _refused(program: Any, arguments: list[tf.Tensor]) -> str:
    with hostcall.scope(route="custom_call"):
        return failure(jitted(program), *arguments).message


def _filled(line: str, blanks: list[str]) -> str:
    assert line.count("...") == len(blanks), line
    for blank in blanks:
        line = line.replace("...", blank, 1)
    return line


def _advice(message: str) -> dict[str, str]:
    """The lines of a message: of the log, or of an error."""
    set_shapes = re.findall(r"y(?:\[\d\])?\.set_shape\(\[.*?\]\)", message)
    (tout,) = re.findall(r"Tout=(.*?) in the call", message)
    (declare,) = re.findall(r"hostcall\.declare\(.*?, result=.*?\)(?=    #|\n)", message)
    return {"set_shape": "\n".join(set_shapes), "Tout": tout, "declare": declare}


def _told(case: Case, caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    program = _program(case)
    log, error = _logged(caplog, program, case.arguments), _refused(program, case.arguments)
    assert log.startswith("hostcall: ")
    assert len(log.splitlines()) == 4
    assert _advice(log) == _advice(error)
    return _advice(log)


def _names(case: Case) -> dict[str, Any]:
    called = {"function": case.function, getattr(case.function, "__name__", ""): case.function}
    return {"tf": tf, "hostcall": hostcall, "the_object": model, **called}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[named] * (name == "a ufunc")) for name, case in CASES.items()],
    ids=CASES,
)
def test_the_advised_lines_work(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    advice = _told(case, caplog)
    lines = _filled(advice["set_shape"], case.constants)
    program = _program(case, after=lambda y: exec(lines, {"y": y}))
    _assert_is_one_program(case, program, caplog)
    tout = eval(_filled(advice["Tout"], case.constants), _names(case))
    _assert_is_one_program(case, _program(case, tout), caplog)
    try:
        exec(_filled(advice["declare"], case.rule), _names(case))
        _assert_is_one_program(case, _program(case), caplog)
    finally:
        hostcall.declare(case.function, result=None)


def _assert_is_one_program(case: Case, program: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert _logged(caplog, program, case.arguments) == ""
    with hostcall.scope(route="custom_call"):
        actual = to_numpy(jitted(program)(*case.arguments))
    assert_same(actual, to_numpy(plain(program)(*case.arguments)))


def test_the_advice_that_partitioning_is_fine_works(caplog: pytest.LogCaptureFixture) -> None:
    def halves(values: Any) -> Any:
        return values[::2]

    program = _program(Case(halves, FLOAT, [], [], []))
    message = _logged(caplog, program, [COSTS])
    line = message.partition("partitioning is fine: ")[2]
    exec(line, {"hostcall": hostcall, "halves": halves})
    announcements._told.clear()
    assert _logged(caplog, program, [COSTS]) == ""


def test_a_rank_that_nobody_knows_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    case = CASES["a matching"]
    program = _program(case)
    for message in (_logged(caplog, program, [COSTS]), _refused(program, [COSTS])):
        assert "TensorSpec(x.shape" not in message


def test_callbacks_are_advised_their_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    cut = hostcall.callback(
        lambda table: table[:1], result=lambda table: tf.TensorSpec([None, 3], FLOAT)
    )
    message = _logged(caplog, lambda x: cut(x), [COSTS])
    assert "@hostcall.callback(result=lambda table: tf.TensorSpec([..., 3], tf.float32))" in message
    assert "@hostcall.callback(..., route='partition')" in message
    assert "Tout" not in message


def test_structures_are_advised_their_own_line(caplog: pytest.LogCaptureFixture) -> None:
    def both(table: Any) -> Any:
        return {"a": table, "b": table[0]}

    program = _program(Case(both, {"a": FLOAT, "b": FLOAT}, [], [], []))
    message = _logged(caplog, program, [COSTS])
    assert "Tout" not in message
    line = re.findall(r"hostcall\.declare\(both, result=.*?\)(?=\n)", message)[0]
    exec(_filled(line, ["2, 3", "3"]), {"hostcall": hostcall, "both": both, "tf": tf})
    assert _logged(caplog, program, [COSTS]) == ""


@pytest.mark.parametrize(
    ("function", "dtype", "x"),
    [
        (np.unique, FLOAT, [1.0, 3.0, 1.0]),
        (np.flatnonzero, tf.int64, [0.0, 3.0, 1.0]),
        (np.nonzero, [tf.int64, tf.int64], [[0.0, 3.0], [1.0, 2.0]]),
    ],
)
def test_sizes_that_depend_on_values(
    function: Any, dtype: Any, x: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The line needs no filling in, and the function is one program with it."""
    case = Case(function, dtype, [tf.constant(x)], [], [])
    message = _logged(caplog, _program(case), case.arguments)
    line = re.findall(r"before the call:\n    (hostcall.declare\(.*\))\n", message)[0]
    try:
        exec(line, {"hostcall": hostcall, "np": np, "tf": tf})
        _assert_is_one_program(case, _program(case), caplog)
    finally:
        hostcall.declare(function, result=None)

"""The lines that the log and errors advise for unknown shapes work once they are filled in."""

import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

import hostcall
from hostcall._callbacks import requested_routes
from hostcall._compiler import announcements
from tests.support.helpers import assert_same, failure, jitted, to_numpy

COSTS = tf.constant([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])


def first_parameter(function: Callable[..., Any]) -> str:
    """The name in the advised rule; newer versions of SciPy tell it, older ones do not."""
    try:
        return next(iter(inspect.signature(function).parameters))
    except ValueError:
        return "x"


@pytest.fixture(autouse=True)
def auto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the route of the whole test run is; and the log says everything anew."""
    configured = requested_routes.current()
    hostcall.configure(route="auto")
    monkeypatch.setattr(announcements, "_told", set())
    yield
    hostcall.configure(route=configured)


class Model:
    """With a method that is called."""

    def widths(self, table: Any, margin: Any) -> Any:
        return table.max(0) + margin


@dataclasses.dataclass
class Case:
    """A function whose result has no known shape.

    Attributes:
      function: what is called.
      tout: as the user has it.
      arguments: of the call.
      constants: what goes into the blanks of the lines for constants, one after the other.
      rule: likewise for the rule.
      names: of what else the lines name.
    """

    function: Callable[..., Any]
    tout: Any
    arguments: list[tf.Tensor]
    constants: list[str]
    rule: list[str]
    names: dict[str, Any] = dataclasses.field(default_factory=dict)
    op: Any = tf.numpy_function


def total(table: Any) -> Any:
    return table.sum()


def quantiles(values: Any, levels: Any) -> Any:
    return np.quantile(values, levels).astype(np.float32)


def corners(tf: Any) -> Any:  # a name that the rule needs for itself
    return tf[:1, :1]


def first_and_all(table: Any) -> Any:
    return table[0], table


def squares(table: Any) -> Any:
    return table * table


model = Model()
FLOAT = tf.float32
CASES = {
    "a scalar": Case(total, FLOAT, [COSTS], [""], [""]),
    "no relation to the input": Case(
        quantiles, FLOAT, [COSTS, tf.constant([0.5])], ["1"], ["levels.shape[0]"]
    ),
    "a matching": Case(
        scipy.optimize.linear_sum_assignment,
        [tf.int64, tf.int64],
        [COSTS],
        ["2", "2"],
        [f"min({first_parameter(scipy.optimize.linear_sum_assignment)}.shape)"] * 2,
    ),
    "a rank that is known": Case(
        corners, tf.TensorSpec([None, 1], FLOAT), [COSTS], ["1"], ["tf_.shape[0] - 1"]
    ),
    "one of two": Case(
        first_and_all,
        [tf.TensorSpec([3], FLOAT), FLOAT],
        [COSTS],
        ["2, 3"],
        ["*table.shape"],
    ),
    "a list of one": Case(lambda table: [table[0]], [FLOAT], [COSTS], ["3"], ["table.shape[1]"]),
    "a py_function": Case(squares, FLOAT, [COSTS], ["2, 3"], ["*table.shape"], op=tf.py_function),
    "a method": Case(
        model.widths,
        FLOAT,
        [COSTS, tf.constant(1.0)],
        ["3"],
        ["table.shape[1]"],
        {"the_object": model},
    ),
    "a lambda": Case(lambda a, b: a - b, FLOAT, [COSTS, COSTS], ["2, 3"], ["*a.shape"]),
    "a ufunc": Case(np.subtract, FLOAT, [COSTS, COSTS], ["2, 3"], ["*x1.shape"]),
}
# NumPy before 2.2, which is what TensorFlow 2.19 takes, does not name the parameters of its ufuncs.
named = pytest.mark.tensorflow("2.20", "NumPy does not name the parameters of its ufuncs")
each_case = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[named] * (name == "a ufunc")) for name, case in CASES.items()],
    ids=CASES,
)


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
    (tout,) = re.findall(r"Tout=(.*?)(?: in the call|\n)", message)
    (declare,) = re.findall(r"hostcall\.declare\(.*?, result=.*?\)(?=\. To say|    #|\n)", message)
    return {"set_shape": "\n".join(set_shapes), "Tout": tout, "declare": declare}


def _told(case: Case, caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    program = _program(case)
    log, error = _logged(caplog, program, case.arguments), _refused(program, case.arguments)
    assert log.startswith("hostcall: ")
    assert "\n" not in log
    assert _advice(log) == _advice(error)
    return _advice(log)


def _names(case: Case) -> dict[str, Any]:
    name = getattr(case.function, "__name__", "")
    return {
        "tf": tf,
        "hostcall": hostcall,
        "function": case.function,
        name: case.function,
        **case.names,
    }


@each_case
def test_the_advised_set_shape_works(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    advice = _told(case, caplog)
    lines = _filled(advice["set_shape"], case.constants)
    program = _program(case, after=lambda y: exec(lines, {"y": y}))
    _assert_is_one_program(case, program, caplog)


@each_case
def test_the_advised_tout_works(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    advice = _told(case, caplog)
    tout = eval(_filled(advice["Tout"], case.constants), _names(case))
    _assert_is_one_program(case, _program(case, tout), caplog)


@each_case
def test_the_advised_declaration_works(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    advice = _told(case, caplog)
    try:
        exec(_filled(advice["declare"], case.rule), _names(case))
        _assert_is_one_program(case, _program(case), caplog)
    finally:
        hostcall.declare(case.function, result=None)


def _assert_is_one_program(case: Case, program: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert _logged(caplog, program, case.arguments) == ""
    with hostcall.scope(route="custom_call"):
        actual = to_numpy(jitted(program)(*case.arguments))
    assert_same(actual, to_numpy(tf.function(program)(*case.arguments)))


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
        assert "not even how many dimensions it has" in message
        assert "TensorSpec(x.shape" not in message


def test_callbacks_and_structures_are_advised_their_own_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def cut(table: Any) -> Any:
        return table[:1]

    callback = hostcall.callback(cut, result=lambda table: tf.TensorSpec([None, 3], FLOAT))
    message = _logged(caplog, lambda x: callback(x), [COSTS])
    assert "@hostcall.callback(result=lambda table: tf.TensorSpec([..., 3], tf.float32))" in message
    assert "@hostcall.callback(..., route='partition')" in message
    assert "Tout" not in message

    def both(table: Any) -> Any:
        return {"a": table, "b": table[0]}

    program = _program(Case(both, {"a": FLOAT, "b": FLOAT}, [], [], []))
    message = _logged(caplog, program, [COSTS])
    assert "Tout" not in message
    line = re.findall(r"hostcall\.declare\(both, result=.*?\)(?=\. To say)", message)[0]
    exec(_filled(line, ["2, 3", "3"]), {"hostcall": hostcall, "both": both, "tf": tf})
    assert _logged(caplog, program, [COSTS]) == ""


_VARYING = """
import logging, re
import numpy as np
import tensorflow as tf
import hostcall

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("hostcall").addHandler(handler)
x = tf.constant({x})

def program(x):
    return tf.nest.map_structure(lambda y: y * 2, tf.numpy_function({function}, [x], {dtype}))

def run():
    said.clear()
    found = tf.function(program, jit_compile=True)(x)
    return [value.numpy().tolist() for value in tf.nest.flatten(found)]

expected = run()
line = re.search(r"before the call: (hostcall.declare\\(.*\\))\\. To say", said[0])[1]
exec(line)
assert run() == expected
print(said)
"""


@pytest.mark.parametrize(
    ("function", "dtype", "x"),
    [
        ("np.unique", "tf.float32", [1.0, 3.0, 1.0]),
        ("np.flatnonzero", "tf.int64", [0.0, 3.0, 1.0]),
        ("np.nonzero", "[tf.int64, tf.int64]", [[0.0, 3.0], [1.0, 2.0]]),
    ],
)
def test_sizes_that_depend_on_values(
    function: str, dtype: str, x: Any, run_python: Callable[..., str]
) -> None:
    """The line needs no filling in, and the function is one program with it."""
    script = _VARYING.format(function=function, dtype=dtype, x=x)
    assert run_python(script, HOSTCALL_ROUTE="auto").strip() == "[]"

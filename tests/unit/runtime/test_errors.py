"""hostcall_runtime._errors: the text that an exception travels as, and the way back from it."""

import threading
import traceback
from typing import ClassVar

import pytest

import hostcall
from hostcall_runtime import _errors, _registry
from tests.support.fate import Fate
from tests.support.helpers import DetailedError, assert_says
from tests.support.threads import PATIENCE, in_threads, switching_often

CALL = _registry.Target(lambda: None, "pyfunc_1", "a call")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_last_error_reads_the_number() -> None:
    first, second = raised(DetailedError("first")), raised(DetailedError("second"))
    one, other = _errors.describe(first)[1], _errors.describe(second)[1]
    assert hostcall.last_error(RuntimeError(one)) is first
    # An error that tells of an error: the outer one's number comes last.
    assert hostcall.last_error(RuntimeError(f"{one}\n{other}")) is second
    for text in ("", "[hostcall error ]", "[hostcall error x]", "[hostcall error 999999999: x]"):
        assert hostcall.last_error(RuntimeError(text)) is None


def test_only_the_latest_sixteen_are_kept() -> None:
    errors = [DetailedError(str(i)) for i in range(17)]
    numbers = [_errors.remember(error) for error in errors]
    assert numbers == list(range(numbers[0], numbers[0] + 17))
    found = [hostcall.last_error(RuntimeError(f"[hostcall error {n}]")) for n in numbers]
    assert found == [None, *errors[1:]]
    fate = Fate(errors[0])
    errors.clear()
    fate.assert_goes()


def test_a_mark_is_a_note_that_does_not_pile_up() -> None:
    error = DetailedError("blah")
    error.add_note("a note of the user's")
    for _ in range(5):
        assert _errors.for_stock_kernel(error, CALL) is error
    assert len(error.__notes__) == 2
    assert error.__notes__[0] == "a note of the user's"
    text = "\n".join(traceback.format_exception(error))
    assert hostcall.last_error(RuntimeError(text)) is error


def test_the_text_names_the_call_the_causes_and_the_notes() -> None:
    call = _registry.Target(lambda: None, "pyfunc_1", "a call of mine", node="layer/PyFunc")
    call.definition = lambda: ["  File one", "  File two"]
    error = raised(ValueError("blah"))
    error.__cause__ = raised(KeyError("the cause"))
    error.add_note("a note of the user's")
    _, text = _errors.describe(error, call)
    assert "In a call of mine (most recent call last):\n  File one\n  File two\n[" in text
    # Without a tag at the end TensorFlow's search for one takes quadratic time.
    assert text.endswith("\n\t [[{{node layer/PyFunc}}]]")
    assert_says(text, "KeyError: 'the cause'", "direct cause", "a note of the user's")


def test_the_text_has_no_empty_line() -> None:
    _, text = _errors.describe(raised(ValueError("blah")))
    assert text.startswith("ValueError: blah\nTraceback (most recent call last):\n  File ")
    assert "\n\n" not in text


def test_the_message_of_an_own_error_says_all() -> None:
    error = _errors.ExecutorError("The executor is gone.")
    error.__cause__ = raised(KeyError("in the executor"))
    _, text = _errors.describe(error)
    assert text.splitlines()[0] == "ExecutorError: The executor is gone."
    assert "KeyError" not in text
    _, text = _errors.describe(raised(_errors.ExecutorError("raised by a user's function")))
    assert_says(text, "Traceback (most recent call last)", "in raised")


def test_numbers_of_threads_never_collide() -> None:
    numbers: list[int] = []

    def work(_: int) -> None:
        numbers.extend([_errors.remember(ValueError()) for _ in range(500)])

    with switching_often():
        in_threads(8, work)
    assert len(set(numbers)) == len(numbers) == 4000


@pytest.mark.parametrize("node", ["", "{{function_node __inference_f_3}} "])
def test_an_interrupt_in_the_lines_of_the_stock_kernel_is_found(node: str) -> None:
    text = f'{node}KeyboardInterrupt: \nTraceback (most recent call last):\n\n  File "a.py", line 1'
    assert isinstance(_errors.interrupt_behind(text), KeyboardInterrupt)
    assert _errors.interrupt_behind(f"ValueError: {text}") is None


class _RemembersWhenDroppedError(ValueError):
    """An exception whose end waits for a thread that remembers another one."""

    in_time: ClassVar[list[bool]] = []

    def __del__(self) -> None:
        other = threading.Thread(target=_errors.remember, args=(ValueError("meanwhile"),))
        other.start()
        other.join(PATIENCE)
        self.in_time.append(not other.is_alive())


def test_an_exception_that_is_pushed_out_may_wait_for_another_failure() -> None:
    _errors.remember(_RemembersWhenDroppedError())
    for i in range(_errors._KEPT):
        _errors.remember(ValueError(str(i)))
    assert _RemembersWhenDroppedError.in_time == [True]

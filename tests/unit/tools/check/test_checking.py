"""`hostcall.check`: what it takes, what it says, and how often it calls."""

import functools
import inspect
import re
import sys
import threading
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tools.check import checking, results

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)


like = functools.partial(hostcall.callback, result=lambda x: x)  # the result is like the argument


def doubling(**options: Any) -> Any:
    return like(lambda x: x * 2, **options)


def finding_of(function: Any, *args: Any, **options: Any) -> hostcall.Finding:
    (finding,) = hostcall.check(function, *args, raise_errors=False, **options).findings
    return finding


def reasons(report: hostcall.CheckReport, check: str) -> list[str]:
    return [one.why for one in report.not_checked if one.check == check]


def test_report_shows_what_to_write_what_passed_and_what_was_not_checked() -> None:
    with pytest.raises(AssertionError) as caught:
        hostcall.check(like(lambda x: x[1:]), VECTOR)
    assert isinstance(caught.value, hostcall.CheckError)
    report = caught.value.report
    text = str(report)
    assert text == str(caught.value)
    assert re.match(r".*<lambda> \(.*test_checking.py:\d+\): 1 finding of \d+ checks\n", text)
    assert "\n    result=lambda x: tf.TensorSpec([x.shape[0] - 1], tf.float32)\n" in text
    assert "Passed: call, count, dtypes" in text
    (named,) = re.findall(r"Not checked: ([\w, \n]+): first comes what was found by shapes", text)
    assert {"gradient", "threads", "compiled"} <= {*named.replace(",", "").split()}
    assert f"The function was called {report.calls} times." in text
    assert not report.ok


def test_every_check_is_named_once_among_those_made_or_not_made() -> None:
    report = hostcall.check(doubling(stateful=False), VECTOR)
    left_out = {one.check for one in report.not_checked if not one.partly}
    assert {*report.passed} | left_out == {*checking.CHECKS}
    assert not {*report.passed} & left_out


def test_checks_are_left_out_by_name() -> None:
    report = hostcall.check(doubling(stateful=False), VECTOR, skip=["threads", "name"])
    assert reasons(report, "threads") == ["it is left out by skip="]
    assert "threads" not in report.passed
    with pytest.raises(ValueError, match=r"skip=\['thread'\] names none of the checks: 'call', "):
        hostcall.check(doubling(), VECTOR, skip=["thread"])
    with pytest.raises(ValueError, match="skip='threads'"):
        hostcall.check(doubling(), VECTOR, skip="threads")


def test_stateful_function_is_called_a_few_times() -> None:
    calls: list[int] = []
    callback = like(lambda x: calls.append(len(x)) or x * 2)
    report = hostcall.check(callback, VECTOR)
    assert len(calls) == report.calls <= 12
    assert "repeat_effects=True" in reasons(report, "threads")[0]
    report = hostcall.check(callback, VECTOR, repeat_effects=True)
    assert {"threads", "layout", "huge"} <= {*report.passed}
    assert report.calls > 40


def test_state_that_changes_later_is_no_finding() -> None:
    calls: list[int] = []

    def reward(x: Any) -> Any:
        calls.append(1)
        return x * np.float32(len(calls) > 8)

    report = hostcall.check(like(reward), VECTOR)
    assert "its state has changed" in "".join(one.why for one in report.not_checked)


def test_size_of_none_that_the_function_does_not_take_is_a_finding() -> None:
    result = lambda x: tf.TensorSpec([None, 3], x.dtype)  # noqa: E731
    callback = hostcall.callback(lambda x: x.reshape(-1, 3), result=result, stateful=False)
    finding = finding_of(callback, tf.TensorSpec([None], tf.float32))
    assert finding.check == "shapes"
    assert "it raises for arguments of shape (4,): ValueError" in finding.what
    assert finding.line.startswith("hostcall.check(function, np.array(...))")
    report = hostcall.check(callback, VECTOR)
    assert any("it raises for arguments of shape (4,)" in why for why in reasons(report, "shapes"))


def test_sizes_that_are_none_are_tried_apart_and_together() -> None:
    def result(a: Any, b: Any) -> Any:
        return tf.TensorSpec([a.shape[0], b.shape[1]], a.dtype)

    any_matrix = tf.TensorSpec([None, None], tf.float32)
    product = hostcall.callback(np.matmul, result=result, stateful=False)
    assert hostcall.check(product, any_matrix, any_matrix).ok
    # It looks right for square matrices alone.
    finding = finding_of(like(np.transpose, stateful=False), any_matrix)
    assert finding.check == "shapes"
    assert finding.line == "result=lambda a: tf.TensorSpec([a.shape[1], a.shape[0]], tf.float32)"


def test_bounded_arguments_stay_within_their_bound() -> None:
    seen: list[int] = []
    callback = like(lambda x: seen.append(len(x)) or x * 2)
    assert hostcall.check(callback, hostcall.BoundedSpec([4], tf.float32), repeat_effects=True).ok
    assert (min(seen), max(seen)) == (0, 4)


def test_sizes_that_a_spec_says_are_not_varied() -> None:
    seen: set[int] = set()
    callback = hostcall.callback(lambda x: seen.add(len(x)) or x * 2, result=lambda x: x)
    report = hostcall.check(callback, tf.TensorSpec([3], tf.float32), repeat_effects=True)
    assert seen == {3}
    assert reasons(report, "empty") == ["no size of the arguments may vary"]
    with pytest.raises(TypeError, match=r"makes up tensors only, .* a RaggedTensor.*Pass a value"):
        hostcall.check(callback, tf.RaggedTensorSpec([None, None], tf.float32))


def test_composite_arguments_stay_as_they_are() -> None:
    spec = tf.TensorSpec([2], tf.float32)
    callback = hostcall.callback(lambda x: tf.reduce_sum(x, axis=1), result=spec, kind="eager")
    report = hostcall.check(callback, tf.ragged.constant([[1.0, 2.0], [3.0]]))
    assert {"compiled", "partitioned"} <= {*report.passed}


def test_function_that_costs_too_much_for_many_rows_is_not_called_with_them() -> None:
    seen: list[int] = []

    def distances(x: Any) -> Any:
        seen.append(len(x))
        return np.abs(x[:, None] - x).sum(axis=1)

    report = hostcall.check(like(distances, stateful=False), VECTOR, skip=["purity"])
    assert max(seen) < 10_000
    assert any("a call with" in why and "MiB" in why for why in reasons(report, "huge"))


def test_threads_that_wait_for_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostcall._tools.check.side_effects._SECONDS", 0.2)
    one_at_a_time, goes_on = threading.Lock(), threading.Event()

    def stuck(x: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            with one_at_a_time:
                goes_on.wait()
        return x * 2

    callback = like(stuck, stateful=False, concurrent=True)
    finding = finding_of(callback, VECTOR, skip=["compiled", "partitioned"])
    goes_on.set()
    assert finding.check == "threads"
    assert "have not ended after" in finding.what


def test_what_threads_may_call_is_suggested_and_no_more() -> None:
    [suggestion] = hostcall.check(doubling(stateful=False), VECTOR).suggestions
    assert (suggestion.check, suggestion.line) == ("threads", "concurrent=True")
    text = str(hostcall.check(doubling(stateful=False), VECTOR))
    assert "Suggested: concurrent=True: calls of several threads return" in text
    for how in ({"stateful": False, "concurrent": True}, {"stateful": True}):
        assert hostcall.check(doubling(**how), VECTOR, repeat_effects=True).suggestions == ()


def test_what_runs_one_at_a_time_need_not_be_for_threads() -> None:
    state: dict[str, Any] = {}

    def scratch(x: Any) -> Any:
        state["x"] = x
        time.sleep(0.001)  # other threads run, as they do while a device works
        return state["x"] * 2

    report = hostcall.check(like(scratch, stateful=False), VECTOR, skip=["purity"])
    assert report.suggestions == ()
    [why] = reasons(report, "threads")
    assert "concurrent=True is not declared, and should not be: with 8 threads" in why


def test_gradient_that_raises_or_miscounts_is_found() -> None:
    def missing(inputs: Any, results: Any, upstream: Any) -> Any:
        raise KeyError("missing")

    for grad, what, line in [
        (missing, "grad raises KeyError", "def grad(inputs, results, upstream): ..."),
        (
            lambda inputs, results, upstream: upstream,
            "another number of gradients",
            "return gradient_of_x, gradient_of_y    # None where there is none",
        ),
        (
            lambda inputs, results, upstream: (tf.cast(upstream, tf.float64), None),
            "the gradient of argument 0 is float64",
            "tf.cast(gradient_of_x, x.dtype)",
        ),
    ]:
        options: dict[str, Any] = {"result": lambda x, y: x, "grad": grad, "stateful": False}
        callback = hostcall.callback(lambda x, y: x + y, **options)
        finding = finding_of(callback, VECTOR, VECTOR)
        assert (finding.check, finding.line) == ("gradient", line)
        assert what in finding.what


def test_gradient_where_results_are_not_smooth_is_not_compared() -> None:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return upstream * tf.sign(inputs[0])

    callback = like(np.abs, stateful=False, grad=grad)
    report = hostcall.check(callback, np.zeros(3, np.float32))
    why = "values for argument 0: the results are not smooth there"
    assert reasons(report, "gradient") == [why]
    assert hostcall.check(callback, VECTOR).passed.count("gradient") == 1


def test_check_that_fails_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(trial: Any) -> Any:
        raise ZeroDivisionError("by me")
        yield

    monkeypatch.setattr(checking, "CHECKS", {"call": results.returns, "odd": broken})
    report = hostcall.check(doubling(), VECTOR)
    assert reasons(report, "odd") == ["the check itself has failed: ZeroDivisionError: by me"]
    assert report.passed == ("call",)


@pytest.mark.usefixtures("enabled_again")
def test_disabled_hostcall_is_named() -> None:
    hostcall.disable()
    report = hostcall.check(doubling(), VECTOR)
    assert "hostcall.enable()" in reasons(report, "compiled")[0]


def test_what_is_no_callback_is_refused() -> None:
    result = {"result": tf.float32}
    for function, options, message in [
        (lambda x: x, {}, r"nothing is declared of the results of .*<lambda>"),
        (tf.function(lambda x: x), result, r"hostcall\.explain shows what becomes of it"),
        (3, result, "wants a function"),
        (doubling(), result, "result= is for plain functions"),
        (doubling(), {"kind": "eager"}, "kind= is for plain functions"),
        (np.sort, {**result, "kwargs": {"axis": 0}}, r"kwargs= is for a hostcall\.callback"),
        (np.sort, {**result, "kind": "other"}, "kind='other'"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            hostcall.check(function, VECTOR, **options)


def test_nothing_of_the_users_is_left_changed() -> None:
    def state() -> str:
        generator = np.random.get_state(legacy=False)
        return repr((sys.getswitchinterval(), [*warnings.filters], generator))

    before, values = state(), VECTOR.copy()
    hostcall.check(doubling(stateful=False), values)
    np.testing.assert_array_equal(values, VECTOR)
    assert state() == before


# With arrays of JAX's.


def test_callback_that_differs_in_jax_is_found() -> None:
    def scaled(x: Any) -> Any:
        files = [frame.filename for frame in inspect.stack(context=0)]
        return x if any("/jax/_src/" in file for file in files) else x * 2

    callback = hostcall.callback(scaled, result=lambda x: x, stateful=False)
    report = hostcall.check(callback, jnp.ones(3), raise_errors=False)
    (finding,) = report.findings
    assert finding.check == "jax"
    assert "in a compiled JAX program result 0 is [1., 1., 1.]" in finding.what


@pytest.mark.parametrize(
    ("function", "result", "reason"),
    [
        (np.unique, lambda x: hostcall.BoundedSpec(x.shape, x.dtype), "sizes only the call tells"),
        (lambda x: np.array([b"a"]), tf.TensorSpec([1], tf.string), "JAX has no strings"),
    ],
)
def test_results_that_jax_has_no_arrays_for(function: Any, result: Any, reason: str) -> None:
    callback = hostcall.callback(function, result=result, stateful=False)
    [why] = [n.why for n in hostcall.check(callback, jnp.ones(3)).not_checked if n.check == "jax"]
    assert reason in why

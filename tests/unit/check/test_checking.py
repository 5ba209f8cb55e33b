"""`hostcall.check`: what it takes, what it says, and how often it calls."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._check import checking, results
from hostcall._check.checking import Entry

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)


def doubling(**options: Any) -> Any:
    return hostcall.callback(lambda x: x * 2, result=lambda x: x, **options)


def finding_of(function: Any, *args: Any, **options: Any) -> hostcall.Finding:
    (finding,) = hostcall.check(function, *args, raise_errors=False, **options).findings
    return finding


def reasons(report: hostcall.CheckReport, check: str) -> list[str]:
    return [one.why for one in report.not_checked if one.check == check]


def test_report_shows_what_to_write_what_passed_and_what_was_not_checked() -> None:
    callback = hostcall.callback(lambda x: x[1:], result=lambda x: x)
    report = hostcall.check(callback, VECTOR, raise_errors=False)
    text = str(report)
    assert re.match(r".*<lambda> \(.*test_checking.py:\d+\): 1 finding of \d+ checks\n", text)
    assert "\n    result=lambda x: tf.TensorSpec([x.shape[0] - 1], tf.float32)\n" in text
    assert "Passed: call, count, dtypes" in text
    (together,) = re.findall(
        r"Not checked: ([\w, \n]+): first comes what was found by shapes", text
    )
    assert {"gradient", "threads", "compiled"} <= {*together.replace(",", "").split()}
    assert f"The function was called {report.calls} times." in text
    assert not report.ok


def test_error_is_an_assertion_that_says_the_same() -> None:
    callback = hostcall.callback(lambda x: x[1:], result=lambda x: x)
    with pytest.raises(AssertionError) as caught:
        hostcall.check(callback, VECTOR)
    assert isinstance(caught.value, hostcall.CheckError)
    assert str(caught.value) == str(caught.value.report)


def test_every_check_is_named_once_among_those_made_or_not_made() -> None:
    report = hostcall.check(doubling(stateful=False), VECTOR)
    left_out = {one.check for one in report.not_checked if not one.partly}
    assert {*report.passed} | left_out == {*checking._NAMES}
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
    callback = hostcall.callback(lambda x: calls.append(len(x)) or x * 2, result=lambda x: x)
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

    report = hostcall.check(hostcall.callback(reward, result=lambda x: x), VECTOR)
    assert "its state has changed" in "".join(one.why for one in report.not_checked)


def test_size_of_none_that_the_function_does_not_take_is_a_finding() -> None:
    callback = hostcall.callback(
        lambda x: x.reshape(-1, 3),
        result=lambda x: tf.TensorSpec([None, 3], x.dtype),
        stateful=False,
    )
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
    transposed = hostcall.callback(np.transpose, result=lambda a: a, stateful=False)
    finding = finding_of(transposed, any_matrix)
    assert finding.check == "shapes"
    assert finding.line == "result=lambda a: tf.TensorSpec([a.shape[1], a.shape[0]], tf.float32)"


def test_bound_that_is_too_small_is_found() -> None:
    callback = hostcall.callback(
        lambda x: np.repeat(x, 2), result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype)
    )
    finding = finding_of(callback, VECTOR)
    assert "result 0 has shape (6,)" in finding.what
    assert "declared is (<=3,)" in finding.what


def test_shape_function_that_fails_is_found() -> None:
    callback = hostcall.callback(lambda x: x * 2, result=lambda x: tf.TensorSpec([x.shape[1]]))
    finding = finding_of(callback, VECTOR)
    assert finding.check == "shapes"
    assert "IndexError" in finding.what
    assert finding.line == "result=lambda x: tf.TensorSpec(x.shape, tf.float32)"


def test_bounded_arguments_stay_within_their_bound() -> None:
    seen: list[int] = []
    callback = hostcall.callback(lambda x: seen.append(len(x)) or x * 2, result=lambda x: x)
    assert hostcall.check(callback, hostcall.BoundedSpec([4], tf.float32), repeat_effects=True).ok
    assert max(seen) == 4
    assert min(seen) == 0


def test_sizes_that_a_spec_says_are_not_varied() -> None:
    seen: set[int] = set()
    callback = hostcall.callback(lambda x: seen.add(len(x)) or x * 2, result=lambda x: x)
    report = hostcall.check(callback, tf.TensorSpec([3], tf.float32), repeat_effects=True)
    assert seen == {3}
    assert reasons(report, "empty") == ["no size of the arguments may vary"]
    with pytest.raises(TypeError, match=r"makes up tensors and no RaggedTensor.*Pass a value"):
        hostcall.check(callback, tf.RaggedTensorSpec([None, None], tf.float32))


def test_composite_arguments_stay_as_they_are() -> None:
    callback = hostcall.callback(
        lambda rows: tf.reduce_sum(rows, axis=1),
        result=tf.TensorSpec([2], tf.float32),
        kind="eager",
    )
    report = hostcall.check(callback, tf.ragged.constant([[1.0, 2.0], [3.0]]))
    assert {"compiled", "partitioned"} <= {*report.passed}


def test_function_that_costs_too_much_for_many_rows_is_not_called_with_them() -> None:
    seen: list[int] = []

    def distances(x: Any) -> Any:
        seen.append(len(x))
        return np.abs(x[:, None] - x).sum(axis=1)

    callback = hostcall.callback(distances, result=lambda x: x, stateful=False)
    report = hostcall.check(callback, VECTOR, skip=["purity"])
    assert max(seen) < 10_000
    assert any("a call with" in why and "MiB" in why for why in reasons(report, "huge"))


def test_slow_function_is_called_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostcall._check.side_effects._SLOW", -1.0)
    some = hostcall.check(doubling(stateful=False), VECTOR).calls
    monkeypatch.undo()
    assert some < hostcall.check(doubling(stateful=False), VECTOR).calls


def test_threads_that_wait_for_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("hostcall._check.side_effects._SECONDS", 0.2)
    one_at_a_time, goes_on = threading.Lock(), threading.Event()

    def stuck(x: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            with one_at_a_time:
                goes_on.wait()
        return x * 2

    callback = hostcall.callback(stuck, result=lambda x: x, stateful=False, concurrent=True)
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

    callback = hostcall.callback(scratch, result=lambda x: x, stateful=False)
    report = hostcall.check(callback, VECTOR, skip=["purity"])
    assert report.suggestions == ()
    [why] = reasons(report, "threads")
    assert "concurrent=True is not declared, and should not be: with 8 threads" in why


def test_prints_of_pure_functions_are_found_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    callback = hostcall.callback(lambda x: print("x") or x, result=lambda x: x, stateful=False)  # noqa: T201
    finding = finding_of(callback, VECTOR, skip=["threads"])
    assert finding.check == "purity"
    assert "calls print 4 characters" in finding.what
    assert capsys.readouterr().out.count("x\n") >= 2


def test_global_generator_is_an_effect() -> None:
    def shuffled(x: Any) -> Any:
        np.random.random()
        return x * 2

    callback = hostcall.callback(shuffled, result=lambda x: x, stateful=False)
    finding = finding_of(callback, VECTOR)
    assert "each call changes NumPy's global random generator" in finding.what


def test_method_that_counts_is_no_pure_one() -> None:
    class Model:
        calls = 0

        @hostcall.callback(result=lambda x: x, stateful=False)
        def run(self, x: Any) -> Any:
            self.calls += 1
            return x

    assert "each call changes attribute calls" in finding_of(Model().run, VECTOR).what


def test_gradient_that_raises_or_miscounts_is_found() -> None:
    def raising(inputs: Any, results: Any, upstream: Any) -> Any:
        raise KeyError("missing")

    for grad, what, line in [
        (raising, "grad raises KeyError", "def grad(inputs, results, upstream): ..."),
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
        callback = hostcall.callback(
            lambda x, y: x + y, result=lambda x, y: x, grad=grad, stateful=False
        )
        finding = finding_of(callback, VECTOR, VECTOR)
        assert finding.check == "gradient"
        assert what in finding.what
        assert finding.line == line


def test_gradient_where_results_are_not_smooth_is_not_compared() -> None:
    callback = hostcall.callback(
        lambda x: np.abs(x),
        result=lambda x: x,
        stateful=False,
        grad=lambda inputs, results, upstream: upstream * tf.sign(inputs[0]),
    )
    report = hostcall.check(callback, np.zeros(3, np.float32))
    assert reasons(report, "gradient") == [
        "values for argument 0: the results are not smooth there"
    ]
    assert hostcall.check(callback, VECTOR).passed.count("gradient") == 1


def test_eager_function_that_hides_its_gradient_is_found() -> None:
    def hidden(x: Any) -> Any:
        return x * tf.stop_gradient(x)

    finding = finding_of(hidden, VECTOR, result=lambda x: x, kind="eager")
    assert finding.check == "gradient"
    assert finding.line.startswith("tf.custom_gradient")


def test_check_that_fails_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(trial: Any) -> Any:
        raise ZeroDivisionError("by me")
        yield

    monkeypatch.setattr(checking, "CHECKS", (Entry("call", results.call), Entry("odd", broken)))
    report = hostcall.check(doubling(), VECTOR)
    assert reasons(report, "odd") == ["the check itself has failed: ZeroDivisionError: by me"]
    assert report.passed == ("call",)


def test_disabled_hostcall_is_named() -> None:
    hostcall.disable()
    try:
        report = hostcall.check(doubling(), VECTOR)
    finally:
        hostcall.enable()
    assert "hostcall.enable()" in reasons(report, "compiled")[0]


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(TypeError, match=r"nothing is declared of the results of .*<lambda>"):
        hostcall.check(lambda x: x, VECTOR)
    with pytest.raises(TypeError, match=r"hostcall\.explain shows what becomes of it"):
        hostcall.check(tf.function(lambda x: x), VECTOR, result=tf.float32)
    with pytest.raises(TypeError, match="wants a function"):
        hostcall.check(3, VECTOR, result=tf.float32)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="result= is for plain functions"):
        hostcall.check(doubling(), VECTOR, result=tf.float32)
    with pytest.raises(TypeError, match="kind= is for plain functions"):
        hostcall.check(doubling(), VECTOR, kind="eager")
    with pytest.raises(TypeError, match=r"kwargs= is for a hostcall\.callback"):
        hostcall.check(np.sort, VECTOR, result=tf.float32, kwargs={"axis": 0})
    with pytest.raises(ValueError, match="kind='other'"):
        hostcall.check(np.sort, VECTOR, result=tf.float32, kind="other")


def test_keywords_reach_function_and_shape_function() -> None:
    def repeated(x: Any, *, times: int) -> Any:
        return np.repeat(x, times)

    callback = hostcall.callback(
        repeated,
        result=lambda x, times: tf.TensorSpec([x.shape[0] * times], x.dtype),
        stateful=False,
    )
    assert hostcall.check(callback, VECTOR, kwargs={"times": 2}).ok


def test_nothing_of_the_users_is_left_changed() -> None:
    import sys
    import warnings

    before = (sys.getswitchinterval(), [*warnings.filters], np.random.get_state(legacy=False))
    values = VECTOR.copy()
    hostcall.check(doubling(stateful=False), values)
    np.testing.assert_array_equal(values, VECTOR)
    after = (sys.getswitchinterval(), [*warnings.filters], np.random.get_state(legacy=False))
    assert repr(before) == repr(after)

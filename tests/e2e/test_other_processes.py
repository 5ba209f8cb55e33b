"""Functions in other processes of one job: their Python functions run there."""

import json
from typing import Any

import pytest

from tests.support.saved import multi_worker
from tests.support.stress.template import Template

pytestmark = pytest.mark.full_run("its servers take ports, and are killed")

# The processes that it starts end with it.
_SCRIPT = """
import json, os, signal
import hostcall
from tests.support.saved import cluster

os.setpgid(0, 0)
print(json.dumps(cluster.run_all()), flush=True)
os.killpg(0, signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def found(fresh_python: Template) -> Any:
    """The results of the programs, and the processes in which they ran."""
    ended = fresh_python.run_program(_SCRIPT)
    assert ended.printed, ended.said
    return json.loads(ended.printed.splitlines()[-1])


def test_compiled_steps_under_a_parameter_server_strategy(found: Any) -> None:
    steps = found["parameter_server"]
    assert [step[1:] for step in steps] == [[8.0, 12.0]] * 4
    assert {step[0] for step in steps} <= set(found["workers"])


def test_training_under_a_parameter_server_strategy(found: Any) -> None:
    training = found["parameter_server_training"]
    assert training["device"].startswith("/job:ps/")
    assert training["weights"] == [1.0 - 8 * 12 / 4, 2.0 - 8 * 27 / 4]
    assert len(training["processes"]) == 8
    assert set(training["processes"]) <= set(found["workers"])


def test_training_under_a_multi_worker_mirrored_strategy(found: Any) -> None:
    alone, workers = multi_worker.train_alone(), found["together"]
    assert [worker["replicas"] for worker in workers] == [2, 2]
    assert len({worker["process"] for worker in workers}) == 2
    for worker in workers:
        assert worker["weights"] == pytest.approx(alone["weights"], rel=1e-6)
        assert worker["losses"] == pytest.approx(alone["losses"], rel=1e-6)
        assert worker["rows"] == [2] * multi_worker.STEPS  # its own, once in each step
    own = [worker["own losses"] for worker in workers]
    assert [sum(pair) for pair in zip(*own, strict=True)] == workers[0]["losses"]


def test_a_compiled_function_on_a_remote_device(found: Any) -> None:
    assert found["remote_device"] == [found["workers"][1], 27.0]


@pytest.mark.parametrize("place", ["here", "there"])
def test_a_session_with_a_remote_task(found: Any, place: str) -> None:
    process = found["here"] if place == "here" else found["workers"][0]
    assert found["version_1"][place] == [[process, process, 8.0, 12.0], [process, process]]


def test_a_service_of_tf_data(found: Any) -> None:
    values = (0.0, 1.0, 8.0, 0.0, 1.0, 2.0)
    assert found["data_service"] == [[found["server"], value] for value in values]


def test_a_module_that_the_worker_may_not_import(found: Any) -> None:
    assert "Python function numpy:sin, called at job.py:" in found["not_allowed"]
    assert 'hostcall.allow("numpy:sin")' in found["not_allowed"]


@pytest.mark.parametrize("case", ["not_named", "not_named_in_version_1"])
def test_a_function_that_the_worker_cannot_find(found: Any, case: str) -> None:
    assert "another process, which had no name for this Python function" in found[case]
    assert 'hostcall.provide("mymodel::function", function)' in found[case]

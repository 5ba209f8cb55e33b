"""What all tests share; the settings come before TensorFlow starts, which reads them only once."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

# Two logical CPUs, for the tests that distribute over several devices.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--route",
        choices=["auto", "custom_call", "split"],
        default="auto",
        help="of the script ops in all tests; tests of the custom call alone need 'auto'",
    )


def pytest_configure(config: pytest.Config) -> None:
    route = config.getoption("--route")
    if route == "auto":
        return
    os.environ["HOSTCALL_ROUTE"] = route  # for the processes that tests start

    import hostcall  # what reads the variable in this process, where it is not imported already

    hostcall.configure(route=route)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--route") != "split":
        return
    of_custom_call = [item for item in items if item.get_closest_marker("custom_call")]
    config.hook.pytest_deselected(items=of_custom_call)
    items[:] = [item for item in items if item not in set(of_custom_call)]


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs a script in a Python of its own, with environment variables; returns its output."""

    def run(script: str, **variables: str) -> str:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("HOSTCALL_DISABLE", "TF_XLA_FLAGS")
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run

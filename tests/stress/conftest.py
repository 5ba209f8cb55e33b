"""What the stress tests share."""

from collections.abc import Iterator

import pytest

from tests.support.stress.processes import Worker
from tests.support.stress.template import Template


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    template = Template("hostcall", "keras")
    yield template
    template.close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process that runs the cases of a file, one after another."""
    worker = Worker()
    yield worker
    worker.close()

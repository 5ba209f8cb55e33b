"""The fixtures that the stress tests share."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.stress.template import Template


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    with contextlib.closing(Template("hostcall", "keras")) as template:
        yield template

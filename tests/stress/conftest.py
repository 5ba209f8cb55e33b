"""The fixtures that the stress tests share."""

from collections.abc import Iterator

import pytest

from tests.support.stress.template import Template


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    template = Template("hostcall", "keras")
    yield template
    template.close()

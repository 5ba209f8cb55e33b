"""JAX on CPUs, whatever else the machine has; processes that have imported JAX and no more."""

import os
from collections.abc import Iterator

import pytest

from tests.support.stress.template import Template

os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(scope="session")
def fresh_jax() -> Iterator[Template]:
    """Runs functions in processes of their own, which have imported hostcall and JAX."""
    template = Template("hostcall", "jax.experimental.jax2tf", ends_soon=True)
    yield template
    template.close()

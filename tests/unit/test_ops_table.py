"""docs/ops.md says what becomes of the ops that XLA has no kernels for."""

import pytest

from tests.support.e2e import table
from tests.support.versions import is_older_than

pytestmark = pytest.mark.usefixtures("auto_route")


@pytest.mark.skipif(is_older_than("2.21") or not is_older_than("2.22"), reason="it is about 2.21")
def test_the_page_is_up_to_date() -> None:
    written = table.PAGE.read_text(encoding="utf-8")
    assert written == table.text(), "run: .venv/bin/python -m tests.support.e2e.table"

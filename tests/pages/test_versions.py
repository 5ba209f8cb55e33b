"""docs/versions.md: which tests older versions of TensorFlow leave out, and why."""

import re

import pytest

from tests.support.pages import ROOT, read

_MARK = re.compile(r'mark\.tensorflow\(\s*"([\d.]+)",\s*"([^"]+)",?\s*\)')
_MARKS = sorted(
    {
        found
        for file in ROOT.glob("tests/**/*.py")
        for found in _MARK.findall(file.read_text(encoding="utf-8"))
    }
)


@pytest.mark.parametrize(("since", "reason"), _MARKS)
def test_the_page_says_what_older_versions_cannot_do(since: str, reason: str) -> None:
    rows = re.findall(rf"^\| {re.escape(since)} \|.*$", read("docs/versions.md"), re.MULTILINE)
    assert any(reason in row for row in rows)

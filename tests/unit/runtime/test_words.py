"""hostcall_runtime._errors: numbers with their nouns."""

import pytest

from hostcall_runtime._errors import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 sizes"), (1, "1 size"), (2, "2 sizes")])
def test_numbers_are_told_with_their_nouns(number: int, text: str) -> None:
    assert counted(number, "size") == text

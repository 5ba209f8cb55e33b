"""tests.mutations: that `make mutations` finds what it undoes."""

import pytest

from tests.mutations.__main__ import ROOT, Mutation, load


@pytest.mark.parametrize("mutation", load([]), ids=lambda mutation: mutation.name)
def test_the_text_of_a_fix_is_still_there(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    for test in mutation.tests:
        file, _, _ = test.split()[0].partition("::")
        assert (ROOT / file).exists()

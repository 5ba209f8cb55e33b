"""Tape residuals of calls that end after the program that made them, as Ctrl-C lets them."""

from types import SimpleNamespace

import pytest

from hostcall._ops import tape_residuals
from hostcall._ops.tape_residuals import TapeResidual, owners

SPEC = SimpleNamespace(title="pyfunc_of_this_file")


def residual() -> TapeResidual:
    return TapeResidual(SPEC, [], [], [], callers=owners.in_flight(SPEC.title))


def test_a_call_that_ends_after_its_program_keeps_nothing() -> None:
    begun = []

    def program() -> None:
        begun.append(residual())
        raise KeyboardInterrupt

    tracked = len(owners)
    with pytest.raises(KeyboardInterrupt):
        owners.run(frozenset({SPEC.title}), program)
    handle = tape_residuals.keep(begun.pop())
    assert tape_residuals.spec_of(handle) is None
    assert len(owners) == tracked


def test_a_call_whose_program_ends_while_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    note = owners.note

    def note_and_end(handle: int, token: str) -> None:
        note(handle, token)
        tape_residuals.drop(handle)

    monkeypatch.setattr(owners, "note", note_and_end)
    handle = tape_residuals.keep(residual())
    assert tape_residuals.spec_of(handle) is None


def test_a_call_within_its_program_is_kept_until_the_program_ends() -> None:
    def program() -> int:
        handle = tape_residuals.keep(residual())
        assert tape_residuals.spec_of(handle) is SPEC
        return handle

    handle = owners.run(frozenset({SPEC.title}), program)
    assert tape_residuals.spec_of(handle) is None

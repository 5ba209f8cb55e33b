"""hostcall_runtime._runs: the runs of programs."""

from typing import Any

import pytest

from hostcall_runtime import _runs


def test_a_run_that_ctrl_c_keeps_from_beginning_has_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []

    class Runtime:
        begin_run = staticmethod(lambda: begun.append(1))

    def interrupted(program: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(_runs, "_runtime", Runtime)
    monkeypatch.setattr(_runs.Starter, "here", interrupted)
    program: Any = None
    with pytest.raises(KeyboardInterrupt), _runs.running(program):
        pass
    assert not begun

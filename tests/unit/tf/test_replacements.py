"""hostcall._tf.patches: what hostcall puts somewhere, and what others put around it."""

import functools
from typing import Any

import pytest

from hostcall._tf.patches import Replacement


class _Owner:
    def method(self) -> str:
        return "stock"


def _replacement(owner: Any) -> Replacement:
    def wrap(method: Any, patch: Replacement) -> Any:
        @functools.wraps(method)
        def call(self: Any) -> str:
            return f"ours of {method(self)}" if patch.installed else str(method(self))

        return call

    return Replacement(
        lambda: vars(owner)["method"], lambda value: setattr(owner, "method", value), wrap
    )


@pytest.fixture
def owner() -> type[_Owner]:
    return type("_Own", (), dict(vars(_Owner)))


def _wrap_once_more(owner: Any) -> Any:
    inner = owner.method
    owner.method = lambda self: f"theirs of {inner(self)}"
    return inner


def test_what_others_put_around_ours_stays_and_ours_does_nothing(owner: Any) -> None:
    replacement = _replacement(owner)
    replacement.install()
    _wrap_once_more(owner)
    assert owner().method() == "theirs of ours of stock"
    replacement.uninstall()
    assert owner().method() == "theirs of stock"
    replacement.install()
    assert owner().method() == "theirs of ours of stock"


def test_ours_comes_out_when_others_have_taken_theirs_away(owner: Any) -> None:
    stock, replacement = owner.method, _replacement(owner)
    replacement.install()
    ours = _wrap_once_more(owner)
    replacement.uninstall()
    owner.method = ours
    assert owner().method() == "stock"
    replacement.install()
    assert owner().method() == "ours of stock"
    replacement.uninstall()
    assert owner.method is stock


def test_what_others_put_there_while_ours_is_out_is_kept(owner: Any) -> None:
    replacement = _replacement(owner)
    replacement.install()
    replacement.uninstall()
    _wrap_once_more(owner)
    theirs = owner.method
    replacement.install()
    assert owner().method() == "ours of theirs of stock"
    replacement.uninstall()
    assert owner.method is theirs

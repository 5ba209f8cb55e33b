"""The public names of hostcall, some of which are there only when they are asked for."""

import pytest

import hostcall


def test_all_names_are_there() -> None:
    assert set(hostcall.__all__) <= set(dir(hostcall))
    for name in hostcall.__all__:
        assert getattr(hostcall, name) is not None


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'hostcall' has no attribute 'no_such_name'"):
        hostcall.no_such_name  # noqa: B018
    assert not hasattr(hostcall, "bound")

"""The capsules in which extension modules hand each other pointers: their names are checked."""

from __future__ import annotations

from typing import Any

import pytest

import hostcall  # noqa: F401 - it loads both modules
from hostcall_runtime import _library

runtime = _library.load("hostcall_runtime._runtime")
bindings = _library.load("hostcall._tensorflow")

# What takes a capsule, and the name that it wants.
TAKERS: dict[str, Any] = {
    "hostcall.HostApi": runtime.install,
    "hostcall.RuntimeApi": bindings.install,
    "xla._CUSTOM_CALL_TARGET": lambda capsule: bindings.register_handler(capsule, "never"),
}
CAPSULES: dict[str, Any] = {
    "hostcall.HostApi": bindings.host_api,
    "hostcall.RuntimeApi": runtime.api,
    "xla._CUSTOM_CALL_TARGET": runtime.handler,
}


@pytest.mark.parametrize("given", CAPSULES)
@pytest.mark.parametrize("wanted", TAKERS)
def test_a_capsule_of_another_name_is_refused(wanted: str, given: str) -> None:
    if wanted == given:
        assert f'"{given}"' in repr(CAPSULES[given]())
        return
    with pytest.raises(TypeError) as caught:
        TAKERS[wanted](CAPSULES[given]())
    message = str(caught.value)
    assert f"wants a capsule named {wanted}, and was given one named {given}" in message
    assert "install hostcall again" in message

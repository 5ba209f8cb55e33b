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
    "hostcall.TensorApi": runtime.set_tensor_api,
    "hostcall.BufferProviderApi": runtime.set_buffer_provider_api,
    "hostcall.ProfilerApi": runtime.set_profiler_api,
    "hostcall.RunOnPool": bindings.set_pool,
    "xla._CUSTOM_CALL_TARGET": lambda capsule: bindings.register_handler(capsule, "never"),
}
CAPSULES: dict[str, Any] = {
    "hostcall.TensorApi": bindings.eager_tensors,
    "hostcall.BufferProviderApi": bindings.buffer_provider,
    "hostcall.ProfilerApi": bindings.profiler,
    "hostcall.RunOnPool": runtime.pool,
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

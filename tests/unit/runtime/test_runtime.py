"""hostcall_runtime: the registry, and the handler without any of TensorFlow's script ops."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import hostcall._build_info as _build_info
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from hostcall_runtime import _errors, _library
from tests.support.helpers import assert_same

runtime = _library.load("hostcall_runtime._runtime")


class Target:
    """A target that the runtime calls; registered for as long as it lives."""

    def __init__(self, host_function: Callable[..., Any] | None = None, title: str = "it") -> None:
        self.host_function = host_function
        self.title = title
        self.description, self.node, self.definition = "a test", "", list

    def __repr__(self) -> str:
        return f"<target {self.title}>"


def custom_call(callback: int) -> str:
    """The attributes of a call of the handler."""
    names = ("dynamic_operands", "dynamic_results", "sub_byte_operands", "sub_byte_results")
    config = ", ".join(
        [f"callback = {callback} : i64", *[f"{name} = array<i64>" for name in names]]
    )
    return f"{{api_version = 4 : i32, has_side_effect = true, backend_config = {{{config}}}}}"


def program(callback: int) -> Callable[..., Any]:
    """An XLA program of one call, from two floats to two floats."""
    module = f"""
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
        %y = stablehlo.custom_call @hostcall(%x) {custom_call(callback)}
          : (tensor<2xf32>) -> tensor<2xf32>
        return %y : tensor<2xf32>
      }}"""
    return run_module(module, [2], tf.float32)


def run_module(module: str, shape: list[int], dtype: tf.DType) -> Callable[..., Any]:
    def call(x: tf.Tensor) -> Any:
        (result,) = gen_xla_ops.xla_call_module(
            [x], version=9, module=module, Sout=[shape], Tout=[dtype], platforms=["CPU"]
        )
        return result

    return tf.function(call, jit_compile=True, autograph=False)


def test_ids_are_never_used_again() -> None:
    seen = []
    for _ in range(100):
        target = Target()
        seen.append(runtime.register(target, "again"))
        runtime.unregister(seen[-1])
    for _ in range(100):
        seen.append(runtime.register(Target(), "again"))
    assert seen == sorted(set(seen))


def test_a_target_is_found_by_its_name() -> None:
    target, other = Target(), Target()
    first = runtime.register(target, "a name, é ☃")
    second = runtime.register(other, "")
    assert runtime.find("a name, é ☃") is target
    assert runtime.find("") is other
    assert runtime.find("a name") is None
    runtime.unregister(first)
    runtime.unregister(second)
    assert runtime.find("a name, é ☃") is None
    assert runtime.find("") is None


def test_a_duplicate_name_is_refused_with_the_reason() -> None:
    holder, late = Target(title="the first"), Target()
    number = runtime.register(holder, "taken")
    size = runtime.size()
    with pytest.raises(ValueError, match="'taken' is registered already: <target the first>") as e:
        runtime.register(late, "taken")
    assert "Give one of the two another name" in str(e.value)
    with pytest.raises(ValueError, match="registered already"):
        runtime.register(holder, "taken")
    assert runtime.find("taken") is holder
    assert runtime.size() == size
    runtime.unregister(number)


def test_a_name_is_free_when_its_holder_is_gone() -> None:
    first = Target()
    number = runtime.register(first, "free again")
    del first
    gc.collect()
    assert runtime.find("free again") is None
    second, third = Target(), Target()
    later = runtime.register(second, "free again")
    runtime.unregister(number)  # late, and not to touch the new holder
    assert runtime.find("free again") is second
    runtime.unregister(later)
    last = runtime.register(third, "free again")
    assert runtime.find("free again") is third
    runtime.unregister(last)


def test_targets_are_held_weakly() -> None:
    target = Target()
    reference = weakref.ref(target)
    number = runtime.register(target, "weak")
    del target
    gc.collect()
    assert reference() is None
    with pytest.raises(TypeError, match="weak reference"):
        runtime.register(3, "an int")
    assert runtime.find("an int") is None
    runtime.unregister(number)


def test_unregistering_twice_or_what_never_was_is_no_error() -> None:
    target = Target()
    number = runtime.register(target, "twice")
    size = runtime.size()
    for each in (number, number, 0, -1, 2**62):
        runtime.unregister(each)
    assert runtime.size() == size - 1


def test_the_handler_is_a_capsule_of_the_version_it_was_built_for() -> None:
    assert "xla._CUSTOM_CALL_TARGET" in repr(runtime.handler())
    assert runtime.ffi_api_version() == _build_info.FFI_API_VERSION


def test_a_program_calls_its_target() -> None:
    target = Target(lambda x: x * np.float32(2))
    run = program(runtime.register(target, "doubles"))
    assert run(tf.constant([1.0, 2.0])).numpy().tolist() == [2, 4]
    target.host_function = lambda x: x + np.float32(1)
    assert run(tf.constant([1.0, 2.0])).numpy().tolist() == [2, 3]


def test_a_program_outlives_its_target_and_says_so() -> None:
    target = Target(lambda x: x)
    number = runtime.register(target, "dies")
    run = program(number)
    run(tf.constant([1.0, 2.0]))
    del target
    gc.collect()
    heir = Target(lambda x: x)
    runtime.register(heir, "dies")
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"the id {number} is gone"):
        run(tf.constant([1.0, 2.0]))


def test_a_target_that_dies_during_its_call_ends_the_call_well() -> None:
    targets: dict[str, Target] = {}

    def forget(x: Any) -> Any:
        targets.clear()
        runtime.unregister(number)
        gc.collect()
        return x * np.float32(2)

    targets["it"] = Target(forget)
    number = runtime.register(targets["it"], "forgets itself")
    run = program(number)
    assert run(tf.constant([1.0, 2.0])).numpy().tolist() == [2, 4]
    with pytest.raises(tf.errors.FailedPreconditionError):
        run(tf.constant([1.0, 2.0]))


def test_a_busy_callback_blocks_no_lookup() -> None:
    entered, released = threading.Event(), threading.Event()

    def wait(x: Any) -> Any:
        entered.set()
        assert released.wait(60)
        return x

    busy, free = Target(wait), Target(lambda x: x + np.float32(1))
    busy_run = program(runtime.register(busy, "busy"))
    free_run = program(runtime.register(free, "not busy"))
    results = []
    x = tf.constant([1.0, 2.0])
    thread = threading.Thread(target=lambda: results.append(busy_run(x)))
    thread.start()
    try:
        assert entered.wait(60)
        assert runtime.find("busy") is busy
        late = Target(lambda x: x * np.float32(3))
        number = runtime.register(late, "late")
        assert program(number)(x).numpy().tolist() == [3, 6]
        runtime.unregister(number)
        assert free_run(x).numpy().tolist() == [2, 3]
        assert runtime.size() > 1
        assert not results
    finally:
        released.set()
        thread.join()
    assert results[0].numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("f8E4M3", ml_dtypes.float8_e4m3),
        ("f8E3M4", ml_dtypes.float8_e3m4),
        ("f8E5M2", ml_dtypes.float8_e5m2),
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
    ],
)
def test_dtypes_that_only_xla_and_numpy_share(element: str, dtype: Any) -> None:
    bits = np.arange(256, dtype=np.uint8)
    target = Target(lambda x: x[::-1])
    number = runtime.register(target, f"of {element}")
    module = f"""
      func.func public @main(%bits: tensor<256xui8>) -> tensor<256xui8> {{
        %x = stablehlo.bitcast_convert %bits : (tensor<256xui8>) -> tensor<256x{element}>
        %y = stablehlo.custom_call @hostcall(%x) {custom_call(number)}
          : (tensor<256x{element}>) -> tensor<256x{element}>
        %z = stablehlo.bitcast_convert %y : (tensor<256x{element}>) -> tensor<256xui8>
        return %z : tensor<256xui8>
      }}"""
    assert_same(run_module(module, [256], tf.uint8)(tf.constant(bits)).numpy(), bits[::-1])


def test_a_dtype_that_numpy_lacks_is_an_error() -> None:
    with pytest.raises(TypeError):
        runtime.set_dtype(0, "no dtype", "name")


def test_an_error_that_cannot_be_described_is_told_all_the_same() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("the real one")

    target = Target(fail)
    run = program(runtime.register(target, "fails"))
    runtime.set_error_describer(lambda error, target: 1 / 0)
    try:
        with pytest.raises(tf.errors.UnknownError, match="the real one") as caught:
            run(tf.constant([1.0, 2.0]))
    finally:
        runtime.set_error_describer(_errors.describe)
    assert "division by zero" in str(caught.value)


def test_an_interrupt_while_an_interrupt_is_told_of_is_as_good_as_none() -> None:
    def interrupted(x: Any) -> Any:
        raise KeyboardInterrupt

    told: list[BaseException] = []

    def describe(error: BaseException, target: Any) -> Any:
        told.append(error)
        if len(told) < 3:
            raise KeyboardInterrupt
        return _errors.describe(error, target)

    target = Target(interrupted)
    run = program(runtime.register(target, "interrupted"))
    runtime.set_error_describer(describe)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tf.constant([1.0, 2.0]))
    finally:
        runtime.set_error_describer(_errors.describe)
    assert len(told) == 3


@pytest.mark.parametrize("broken", ["host_function", "title"])
def test_a_target_without_what_the_runtime_asks_for(broken: str) -> None:
    target = Target(lambda x: x[1:])  # the title is for messages, as that of a wrong shape
    delattr(target, broken)
    run = program(runtime.register(target, f"without {broken}"))
    with pytest.raises(tf.errors.UnknownError, match=f"no attribute '{broken}'"):
        run(tf.constant([1.0, 2.0]))

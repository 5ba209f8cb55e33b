"""hostcall_runtime: the registry, and the handler without any of TensorFlow's script ops."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import hostcall._build_info as _build_info
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from hostcall_runtime import _errors, _library, _registry
from hostcall_runtime._interception import CallSite
from tests.support.helpers import raising

runtime = _library.load("hostcall_runtime._runtime")


class Target:
    """A target that the runtime calls; registered for as long as it lives."""

    description, node, definition, to_arrays = "a test", "", list, None

    def __init__(self, host_function: Callable[..., Any] | None = None, title: str = "it") -> None:
        self.host_function, self.title = host_function, title

    def __repr__(self) -> str:
        return f"<target {self.title}>"


def program(callback: int) -> Callable[..., Any]:
    """An XLA program of one call, from two floats to two floats."""
    names = ("dynamic_operands", "dynamic_results", "sub_byte_operands", "sub_byte_results")
    empty = [f"{name} = array<i64>" for name in names]
    config = ", ".join([f"callback = {callback} : i64", *empty])
    module = f"""
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
        %y = stablehlo.custom_call @hostcall(%x)
          {{api_version = 4 : i32, has_side_effect = true, backend_config = {{{config}}}}}
          : (tensor<2xf32>) -> tensor<2xf32>
        return %y : tensor<2xf32>
      }}"""
    said = {"version": 9, "module": module, "Sout": [[2]], "Tout": [tf.float32]}

    def call(x: tf.Tensor) -> Any:
        return gen_xla_ops.xla_call_module([x], **said, platforms=["CPU"])[0]

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
    numbers = [runtime.register(target, "a name, é ☃"), runtime.register(other, "")]
    assert runtime.find("a name, é ☃") is target
    assert runtime.find("") is other
    assert runtime.find("a name") is None
    size = runtime.size()
    # Those that never were, or are not any more, are not an error.
    for number in (*numbers, *numbers, 0, -1, 2**62):
        runtime.unregister(number)
    assert runtime.find("a name, é ☃") is runtime.find("") is None
    assert runtime.size() == size - 2


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
    number, reference = runtime.register(first, "free again"), weakref.ref(first)
    del first
    gc.collect()
    assert reference() is runtime.find("free again") is None
    second, third = Target(), Target()
    later = runtime.register(second, "free again")
    runtime.unregister(number)  # late, and not to touch the new holder
    assert runtime.find("free again") is second
    runtime.unregister(later)
    last = runtime.register(third, "free again")
    assert runtime.find("free again") is third
    runtime.unregister(last)


def test_what_cannot_be_held_weakly_is_no_target() -> None:
    with pytest.raises(TypeError, match="weak reference"):
        runtime.register(3, "an int")
    assert runtime.find("an int") is None


def test_the_handler_is_a_capsule_of_the_version_it_was_built_for() -> None:
    assert "xla._CUSTOM_CALL_TARGET" in repr(runtime.handlers()["hostcall"])
    assert runtime.ffi_api_version() == _build_info.FFI_API_VERSION


def test_a_dtype_that_numpy_lacks_is_an_error() -> None:
    with pytest.raises(TypeError):
        runtime.set_dtype(0, "no dtype", "name")


@pytest.fixture
def describing() -> Iterator[Callable[[Any], None]]:
    """Changes how the runtime describes errors."""
    yield runtime.set_error_describer
    runtime.set_error_describer(_errors.describe)


def test_an_error_that_cannot_be_described_is_told_all_the_same(describing: Any) -> None:
    target = Target(raising(KeyError("the real one")))
    run = program(runtime.register(target, "fails"))
    describing(lambda error, target: 1 / 0)
    with pytest.raises(tf.errors.UnknownError, match="the real one") as caught:
        run(tf.constant([1.0, 2.0]))
    assert "division by zero" in str(caught.value)


def test_an_interrupt_while_an_interrupt_is_told_of_is_as_good_as_none(describing: Any) -> None:
    told: list[BaseException] = []

    def describe(error: BaseException, target: Any) -> Any:
        told.append(error)
        if len(told) < 3:
            raise KeyboardInterrupt
        return _errors.describe(error, target)

    target = Target(raising(KeyboardInterrupt()))
    run = program(runtime.register(target, "interrupted"))
    describing(describe)
    with pytest.raises(KeyboardInterrupt):
        run(tf.constant([1.0, 2.0]))
    assert len(told) == 3


@pytest.mark.parametrize("broken", ["host_function", "title"])
def test_a_target_without_what_the_runtime_asks_for(broken: str) -> None:
    target = Target(lambda x: x[1:])  # the title is for messages, as that of a wrong shape
    delattr(target, broken)
    run = program(runtime.register(target, f"without {broken}"))
    with pytest.raises(tf.errors.UnknownError, match=f"no attribute '{broken}'"):
        run(tf.constant([1.0, 2.0]))


# Where programs outlive their process, ids are the same in every process.

_numbers = iter(range(1_000_000))


def registered(description: str, *identity: object) -> tuple[_registry.Target, int]:
    """A target of that description, and its id."""
    target = _registry.Target(lambda: None, "a test")
    target.site = CallSite("function", description)
    name = f"test_runtime/{next(_numbers)}"
    return target, _registry.register(target, name, identity=identity)


def test_an_id_is_never_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "caches", [lambda: True])  # programs outlive the process
    kept = [registered("a.py:20") for _ in range(5)]
    ids = [callback_id for _, callback_id in kept]
    assert len({*ids}) == 5
    assert ids[0] == _registry.wanted_id("function", "a.py:20", "")
    del kept
    _, later = registered("a.py:20")
    assert later not in ids
    assert registered("a.py:20", "recorded")[1] not in [*ids, later]

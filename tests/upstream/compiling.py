"""Compiles what a test runs: each `tf.function`, and each op that it runs eagerly."""

from __future__ import annotations

from typing import Any

from tensorflow.python.eager import context, execute, record
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import op_def_library, op_def_registry, ops

from tensorflow.python import pywrap_tfe  # isort: skip

# Ops that mean the op-by-op runtime itself. A function of their own would say something else.
_NO_FUNCTIONS = {
    "_EagerConst": "makes an eager tensor of a NumPy array",
    "AnonymousIteratorV3": "the handle it makes lives as long as the eager tensor",
    "DummySeedGenerator": "as above",
    "EagerPyFunc": "takes the function's own tape from the eager context",
}

_stock_execute = execute.execute
_functions: dict[Any, Any] = {}
_calls = 0


def calls() -> int:
    """How many compiled functions have been called from outside of functions."""
    return _calls


def compile_everything() -> None:
    """Has each `tf.function` compiled that does not say `jit_compile=False`, and each eager op."""
    polymorphic_function.JIT_COMPILE_FUNCTIONS = True
    polymorphic_function.Function.__call__ = _counted(polymorphic_function.Function.__call__)
    pywrap_tfe.TFE_Py_FastPathExecute = _no_fast_path
    execute.execute = _execute


def _counted(stock_call: Any) -> Any:
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        global _calls
        _calls += bool(self._jit_compile and context.executing_eagerly())
        return stock_call(self, *arguments, **keywords)

    return call


def _no_fast_path(*arguments: Any) -> Any:
    """Sends an op the slow way, which ends in `_execute`."""
    from tensorflow.python.eager import core

    raise core._FallbackException


def _execute(
    op_name: Any, num_outputs: int, inputs: Any, attrs: Any, ctx: Any, name: Any = None
) -> Any:
    """Runs an op as a compiled function of its own; functions come here, too, and stay."""
    text = op_name.decode() if isinstance(op_name, bytes) else op_name
    op_def = op_def_registry.get(text)
    if op_def is None or text in _NO_FUNCTIONS or _takes_functions(op_def):
        return _stock_execute(op_name, num_outputs, inputs, attrs, ctx, name)
    given = dict(zip(attrs[::2], attrs[1::2], strict=True)) if attrs else {}
    key = (text, repr(given))
    if key not in _functions:
        _functions[key] = polymorphic_function.function(
            _function_of(op_def, given), jit_compile=True, autograph=False
        )
    with record.stop_recording():  # whoever asks for the op tells the tape of it
        return list(_functions[key](*map(ops.convert_to_tensor, inputs)) or ())


def _takes_functions(op_def: Any) -> bool:
    """Whether an op calls functions: these are compiled, or the op is one of tf.data's."""
    return any(attr.type in ("func", "list(func)") for attr in op_def.attr)


def _function_of(op_def: Any, given: dict[str, Any]) -> Any:
    """A function that takes the inputs of an op in one row, and returns its outputs likewise."""
    counted = {
        attr
        for arg in op_def.input_arg
        for attr in (arg.type_attr, arg.number_attr, arg.type_list_attr)
    }
    stated = {name: value for name, value in given.items() if name not in counted}

    def function(*inputs: Any) -> Any:
        rest, named = list(inputs), {}
        for arg in op_def.input_arg:
            if arg.number_attr:
                count = given[arg.number_attr]
            elif arg.type_list_attr:
                count = len(given[arg.type_list_attr])
            else:
                named[arg.name] = rest.pop(0)
                continue
            named[arg.name], rest = rest[:count], rest[count:]
        _, _, op, _ = op_def_library._apply_op_helper(op_def.name, op_def.name, **named, **stated)
        return list(op.outputs)

    return function

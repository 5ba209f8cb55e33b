"""Compiles what a test runs: each `tf.function`, and each op that it runs eagerly."""

from typing import Any

from tensorflow.python.data.ops import structured_function
from tensorflow.python.eager import context, execute, record
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import op_def_library, op_def_registry, ops, test_util

from tensorflow.python import pywrap_tfe  # isort: skip

# Ops that mean nothing in a function of their own.
_NO_FUNCTIONS = ("Enter", "Exit", "NextIteration")  # one loop is made of several of them

_stock_execute = execute.execute
_functions: dict[Any, Any] = {}
_calls = 0


class _CannotBeTracedError(Exception):
    """An op that is refused in a graph."""


def calls() -> int:
    """Return how many compiled functions have been called outside of functions."""
    return _calls


def compile_everything() -> None:
    """Has each `tf.function` compiled that does not say `jit_compile=False`, and each eager op."""
    function = polymorphic_function.Function
    function.__init__ = _compiled_by_default(function.__init__)
    function.__call__ = _counted(function.__call__)
    pywrap_tfe.TFE_Py_FastPathExecute = _no_fast_path
    execute.execute = _execute
    wrapper = structured_function.StructuredFunctionWrapper
    wrapper.__init__ = _of_compiled(wrapper.__init__)
    for check in ("assert_no_new_tensors", "assert_no_garbage_created"):
        setattr(test_util, check, _as_it_is)  # the functions of ops stay


def _compiled_by_default(stock_init: Any) -> Any:
    def init(self: Any, *arguments: Any, jit_compile: Any = None, **keywords: Any) -> None:
        attributes = keywords.get("experimental_attributes") or {}
        if jit_compile is None and "_tf_data_function" not in attributes:
            jit_compile = True
        stock_init(self, *arguments, jit_compile=jit_compile, **keywords)

    return init


def _of_compiled(stock_init: Any) -> Any:
    """Has a function of tf.data's call one that is compiled."""

    def init(self: Any, func: Any, *arguments: Any, **keywords: Any) -> None:
        try:
            compiled = polymorphic_function.function(func, jit_compile=True)
            stock_init(self, compiled, *arguments, **keywords)
        except (TypeError, ValueError):  # it takes values that no function can: tensor arrays
            stock_init(self, func, *arguments, **keywords)

    return init


def _as_it_is(test: Any) -> Any:
    return test


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
    try:
        with record.stop_recording():  # the op's caller tells the tape of it
            return list(_functions[key](*map(ops.convert_to_tensor, inputs)) or ())
    except _CannotBeTracedError:  # the kernel says so in words of its own
        return _stock_execute(op_name, num_outputs, inputs, attrs, ctx, name)


def _takes_functions(op_def: Any) -> bool:
    """Return whether an op takes functions: they are compiled, or it is an op of tf.data."""
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
        try:
            _, _, op, _ = op_def_library._apply_op_helper(
                op_def.name, op_def.name, **named, **stated
            )
        except ValueError as error:
            raise _CannotBeTracedError from error
        return list(op.outputs)

    return function

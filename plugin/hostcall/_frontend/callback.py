"""`hostcall.callback`: functions that are called on tensors directly."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import frameworks, structures
from hostcall._callbacks.declaration_checks import TRACE, check_function, check_takes_tensors
from hostcall._callbacks.declarations import Declaration, of_method, of_native
from hostcall._callbacks.specs import BoundedSpec, Spec, as_spec, is_leaf
from hostcall._frontend import custom_gradients, script_ops
from hostcall._tf import autograph, source_location
from hostcall_runtime import register

_KINDS = ("numpy", "eager")


class Callback:
    """A Python function that TensorFlow and JAX programs call, compiled or not.

    Made by `hostcall.callback`; called like the function, with tensors (or structures of them) in
    the place of its arguments. In a `tf.function` the call becomes an op of the graph, executing
    eagerly it runs at once. With JAX's arrays, or values of a JAX program, the call is one of
    `hostcall.jax.call`, ordered where the callback is stateful and else pure.

    Attributes:
      name: what it is registered as, or None.
      kind: "numpy" or "eager".
      stateful: whether each call has a side effect.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        kind: str,
        stateful: bool,
        name: str | None,
        grad: Callable[..., Any] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        # TensorFlow traces through what says that it wraps something.
        self.__dict__.pop("__wrapped__", None)
        self.__signature__ = _signature(function, declaration.out)
        self.name = name
        self.kind = kind
        self.stateful = stateful
        self._function = function
        # By which exported programs know it, in processes that do not have hostcall's TensorFlow.
        self.__hostcall_function__ = function
        self._declaration = declaration
        self._grad = grad
        if name is not None:
            register(self, name)

    # Ours, like TensorFlow's own functions, is not for autograph to convert.
    @autograph.do_not_convert
    def __call__(self, *args: Any) -> Any:
        """Calls the function.

        Args:
          *args: for each argument a tensor, or a structure of tensors; or JAX's arrays instead.

        Returns:
          Tensors in the structure of the declared result, or JAX's arrays.

        Raises:
          TypeError: when the declared result has no dtypes, or an "eager" callback is called from
            JAX.
          ValueError: when a result is declared with a bounded or unknown size, in JAX.
        """
        if frameworks.is_for_jax(args):
            return self._call_from_jax(args)
        args_with_tensors = tf.nest.map_structure(
            _as_tensor, list(args), expand_composites=self.kind == "eager"
        )
        inputs = structures.read_inputs(args_with_tensors, self.kind == "eager", pack_lists=False)
        outputs = structures.Outputs(self._specs(inputs), strict=True)
        if self._grad is None:
            return self._call(inputs, outputs)
        return custom_gradients.call(self._call, self._grad, inputs, outputs)

    def _call(self, inputs: structures.Inputs, outputs: structures.Outputs) -> Any:
        return script_ops.call(
            self._function,
            inputs,
            outputs,
            eager=self.kind == "eager",
            stateful=self.stateful,
            name=_op_name(str(self.name or getattr(self._function, "__name__", ""))),
            declaration=self._declaration,
            given_name=self.name,
        )

    def _call_from_jax(self, args: tuple[Any, ...]) -> Any:
        from hostcall.jax import _callback as in_jax  # which need not be there

        parts = in_jax.Parts(
            self._function, self._declaration, self.kind, self.stateful, self.name, self._grad
        )
        return in_jax.call(parts, args)

    def __get__(self, instance: object | None, owner: type | None = None) -> Callback:
        """The callback of a bound method, where the function is decorated in a class."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound._function = types.MethodType(self._function, instance)
        bound.__hostcall_function__ = bound._function
        bound._declaration = of_method(bound._function, self._declaration)
        bound.__signature__ = _signature(bound._function, self._declaration.out)
        return bound

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"<hostcall.callback{name} of {source_location.of_function(self._function)}>"

    def _specs(self, inputs: structures.Inputs) -> Any:
        """The declared result for these inputs, as a structure of specs."""
        result = self._declaration.result
        if callable(result) and not is_leaf(result):
            known = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs.flat]
            try:
                result = result(*inputs.pack_specs(known))
            except Exception:
                # A rule may compute with sizes that tracing does not know. Ones in their place
                # still tell dtypes and ranks.
                guessed = [tf.TensorSpec(_with_ones(spec.shape), spec.dtype) for spec in known]
                return tf.nest.map_structure(
                    _without_sizes, result_leaves(result(*inputs.pack_specs(guessed)))
                )
        return result_leaves(result)


def callback(
    function: Callable[..., Any] | None = None,
    *,
    result: Any,
    kind: str = "numpy",
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    pure: bool = False,
    timeout: float | None = None,
    borrow: bool = False,
    out: bool = False,
    memo: bool | int = False,
) -> Any:
    """Makes a function callable from TensorFlow programs, compiled ones included.

        @hostcall.callback(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
        def smooth(x):
            return scipy.ndimage.gaussian_filter(x, 1.0)

        y = smooth(x)    # in a tf.function, with jit_compile=True or without, or eagerly

    Args:
      function: left out when used as a decorator.
      result: the results: a `tf.TensorSpec` or `hostcall.BoundedSpec`, a structure of them (`[]`
        for none), or a function from the inputs' specs to one of these. What it says is checked
        whenever the function runs.
      kind: "numpy": the function takes arrays (NumPy scalars for rank 0), writable and its own, and
        returns arrays of the declared dtypes. "eager": it takes EagerTensors, runs in eager mode
        and is differentiable, like that of `tf.py_function`.
      stateful: True: each call runs, once, in program order. False: the function returns the same
        for the same inputs and does nothing else, so that XLA may drop, share or overlap calls. An
        "eager" callback is always stateful.
      name: registers the callback under a qualified name, one of a kind in the process.
      grad: the gradient, `grad(inputs, results, upstream)`: TensorFlow code, or a `Callback` of its
        own. `inputs` is the tuple of the arguments, `results` what the call returned, `upstream`
        the gradients of the results, in the same structure. It returns one gradient for each
        argument (a lone one for a lone argument), of its shape and dtype; None where there is
        none. Another shape or dtype is a ValueError where the gradient is asked for. With it a
        "numpy" callback is differentiable.
      pure: as in `hostcall.declare`, for an "eager" callback.
      timeout: as in `hostcall.declare`.
      borrow: as in `hostcall.declare`, for a "numpy" callback.
      out: likewise.
      memo: as in `hostcall.declare`, for a "numpy" callback with `stateful=False`. The method of a
        class keeps the results of each object on their own.

    Returns:
      A `Callback`, or a decorator that makes one.

    Raises:
      TypeError: when `function` or `grad` is not callable, `function` is an `async` one, or `name`
        is no string.
      ValueError: for a `result` that is a string, an unknown `kind`, a stateless eager callback or
        one that is lent arrays or has a `memo`, a stateful one with a `memo`, a `name` that is
        taken, a `timeout` that is not positive, a `memo` that is no positive number, or one with
        `out`.
    """
    if kind not in _KINDS:
        raise ValueError(f"hostcall.callback: kind={kind!r} is none of {_KINDS}.")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"hostcall.callback: name={name!r} is no string.")
    if grad is not None and not callable(grad):
        raise TypeError(
            f"hostcall.callback: grad={grad!r} is no function. It is called as grad(inputs, "
            "results, upstream), and returns a gradient for each argument."
        )
    if kind == "eager" and not stateful:
        raise ValueError(
            "hostcall.callback: an eager callback records its gradient, which is a side effect. "
            'Use stateful=True, or kind="numpy".'
        )
    if isinstance(result, str) and result == TRACE:
        raise ValueError(
            f"hostcall.callback: result={TRACE!r} is for hostcall.declare, where Tout says the "
            "dtypes. Here the result has to say them: write tf.TensorSpec([3], tf.float32), for "
            "one."
        )
    declaration = Declaration(result, pure, timeout, borrow=borrow, out=out, memo=memo)
    if kind == "eager":
        check_takes_tensors(declaration, "hostcall.callback with kind='eager'")
    if declaration.table is not None and stateful:
        raise ValueError(
            f"hostcall.callback: memo={memo!r} says that the function does nothing but return its "
            "results, and stateful=True, the default, that each call has to run. Write "
            f"hostcall.callback(..., stateful=False, memo={memo!r})."
        )

    def decorate(decorated: Callable[..., Any]) -> Callback:
        check_function(decorated, "hostcall.callback")
        declared = of_native(decorated, declaration.renewed())
        return Callback(decorated, declared, kind, stateful, name, grad)

    return decorate if function is None else decorate(function)


def _signature(function: Callable[..., Any], takes_out: bool) -> inspect.Signature:
    """How a callback is called: as its function, but without `out` where that is ours to give."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions of C modules have none
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    kept = [p for p in signature.parameters.values() if not (takes_out and p.name == "out")]
    return signature.replace(parameters=kept)


def _op_name(name: str) -> str | None:
    """A name that TensorFlow takes for an op."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip("_.-") or None


def result_leaves(result: Any) -> Any:
    """A declared result with each leaf as a spec that says its dtype."""
    if is_leaf(result):
        return as_spec(result, None)
    if isinstance(result, dict):
        return {key: result_leaves(value) for key, value in result.items()}
    if isinstance(result, list | tuple) and not _is_shape(result):
        items = [result_leaves(item) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return as_spec(result, None)


def _is_shape(value: Sequence[Any]) -> bool:
    return bool(value) and all(dim is None or isinstance(dim, int) for dim in value)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, tf.Variable):
        return value
    return tf.convert_to_tensor(value)


def _with_ones(shape: tf.TensorShape) -> tf.TensorShape:
    return tf.TensorShape(None if shape.rank is None else [dim or 1 for dim in shape])


def _without_sizes(spec: Spec) -> Spec:
    if isinstance(spec, BoundedSpec):
        spec = spec.tensor_spec()
    rank = spec.shape.rank
    return tf.TensorSpec(None if rank is None else [None] * rank, spec.dtype)

"""What the stock kernels call for the script ops of a function that is split.

In plain graph mode they call the specs themselves, and ops behave as TensorFlow's always did. In a
compiled function more is promised, whichever way its script ops take: arrays of their own for the
functions, shapes that are checked, results and errors as from a custom call. So the ops of a split
function get the tokens of other entries in TensorFlow's registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall import _errors, _host_errors, _lowering, _shapes, _states, _threads
from hostcall import _tf_private as private
from hostcall._callback_spec import NumpySpec, Recording, shape_error
from hostcall._eager_spec import EagerSpec
from hostcall._specs import Spec, admits
from hostcall._split import CLUSTER_ATTR

# As TensorFlow's C++ calls them; the others have the same name everywhere.
_NAMES = {"float16": "half", "float32": "float", "float64": "double"}

# The stock kernel shares the memory of an array that begins at a multiple of 64, and copies others.
_ALIGNMENT = 32

_STATELESS = "PyFuncStateless"

# TensorFlow's casts to it leave bits open where NumPy has the sign.
_INT4 = tf.as_dtype("int4")


def redirect(functions: Iterable[Any]) -> None:
    """Gives the script ops on the host the tokens of entries that keep the promises above.

    Args:
      functions: the FunctionDefs that have come out of a splitting.

    Raises:
      LoweringError: when the Python function of an op does not exist in this process.
    """
    for function in functions:
        if CLUSTER_ATTR in function.attr:
            continue
        for node in function.node_def:
            if node.op == _STATELESS:
                # TensorFlow would run it once and for all where its inputs are constants.
                node.op = "PyFunc"
            if node.op in private.SCRIPT_OPS:
                _redirect(node)


def _redirect(node: Any) -> None:
    entry = private.token_registry.get(node.attr["token"].s.decode())
    if entry is None:
        raise _lowering.missing(node)
    if isinstance(entry, EagerSpec):
        node.attr["token"].s = entry.host_call(_EagerHostCall, node).title.encode()
    elif isinstance(entry, NumpySpec):
        node.attr["token"].s = entry.host_call(_NumpyHostCall, node).title.encode()


class _HostCall:
    """An entry of TensorFlow's registry; the spec owns it.

    Args:
      spec: the callback.
      node: the NodeDef of an op that calls it.
    """

    def __init__(self, spec: Any, node: Any) -> None:
        self.title = f"{spec.title}/host"
        self._spec = spec
        self._node = node
        self._dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
        self._latest: tuple[list[Any], list[Spec]] | None = None

    def _declared(self, shapes: list[Any]) -> list[Spec]:
        """What is declared of the results for inputs of these shapes."""
        latest = self._latest
        if latest is None or latest[0] != shapes:
            operands = [tf.TensorSpec(s, d) for s, d in zip(shapes, self._dtypes, strict=True)]
            latest = self._latest = (shapes, _shapes.known(self._spec, self._node, operands))
        return latest[1]

    def _check_shapes(self, shapes: Sequence[Any], declared: Sequence[Spec]) -> None:
        for index, (shape, spec) in enumerate(zip(shapes, declared, strict=True)):
            if not admits(spec, shape):
                raise _errors.ResultError(shape_error(self._spec, index, shape, spec))


class _NumpyHostCall(_HostCall):
    """Of a function from arrays to arrays."""

    def __init__(self, spec: NumpySpec, node: Any) -> None:
        super().__init__(spec, node)
        self._function = spec.host_function(Recording.NO)

    def __call__(self, *arrays: Any) -> list[Any]:
        try:
            return self._call(arrays)
        except BaseException as error:
            carrier = _host_errors.carrier_of(error)
        raise carrier

    def _call(self, arrays: Sequence[Any]) -> list[Any]:
        declared = self._declared([np.shape(array) for array in arrays])
        own = [_own(array) for array in arrays]
        results = self._read(self._function(*own))
        self._check_shapes([result.shape for result in results], declared)
        return [_unshared(result) for result in results]

    def _read(self, returned: Any) -> list[np.ndarray]:
        """The results as arrays, with the checks of a custom call."""
        spec, dtypes = self._spec, self._spec.outputs.dtypes
        values = _split(returned, len(dtypes))
        if len(values) != len(dtypes):
            raise self._complaint(
                f"{spec.title} returns {len(values)} values, but expects to see {len(dtypes)} "
                "values."
            )
        return [self._to_array(i, *pair) for i, pair in enumerate(zip(values, dtypes, strict=True))]

    def _to_array(self, index: int, value: Any, dtype: tf.DType) -> np.ndarray:
        subject = f"{index}-th value returned by {self._spec.title}"
        if value is None:
            raise self._complaint(
                f"{subject} is None, but expects {_name(dtype)}.", _errors.INTERNAL
            )
        # An empty list's own dtype would be float64, whatever the function means to return.
        array = np.asarray(value, dtype.as_numpy_dtype if _is_empty_list(value) else None)
        if dtype == tf.string and array.dtype.kind in "SUO":
            return array  # TensorFlow looks at each item
        actual = _dtype_of(array)
        if actual is None:
            message = f"Unsupported numpy data type {array.dtype} of the array {array!r}."
            raise self._complaint(message, _errors.INTERNAL)
        if actual != dtype:
            raise self._complaint(f"{subject} is {_name(actual)}, but expects {_name(dtype)}.")
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _complaint(self, message: str, code: int = _errors.INVALID_ARGUMENT) -> Exception:
        return _errors.ResultError(f"{message} This is {self._spec.description}.", code)


class _EagerHostCall(_HostCall, private.EagerFunc):  # type: ignore[misc]
    """Of a function from EagerTensors to tensors."""

    def __call__(self, device: str | None, token: str, args: Sequence[Any]) -> list[Any]:
        try:
            return self._call(device, args)
        except BaseException as error:
            carrier = _host_errors.carrier_of(error)
        raise carrier

    def _call(self, device: str | None, args: Sequence[Any]) -> list[Any]:
        spec: EagerSpec = self._spec
        declared = self._declared([tuple(tensor.shape) for tensor in args])
        if _INT4 in self._dtypes:
            args = [_tidy(tensor) if tensor.dtype == _INT4 else tensor for tensor in args]
        run = _threads.beside_tapes(spec.timed(spec._run))
        values, state = run(args, spec.gradient_wanted)
        self._check_shapes([value.shape for value in values], declared)
        number = 0 if state is None else _states.keep_for_call(state)
        return spec.for_kernel(values, number, device)


def _own(array: Any) -> Any:
    """A copy, for the function to write to; scalars are no arrays."""
    if getattr(array, "dtype", None) == _INT4.as_numpy_dtype:
        return array.astype(np.int8).astype(array.dtype)
    return array.copy() if isinstance(array, np.ndarray) else array


def _tidy(tensor: Any) -> Any:
    with private.eager_mode():
        return private.to_eager_tensor(_own(tensor.numpy()), None)


def _split(returned: Any, count: int) -> list[Any]:
    if count == 1 and _is_empty_list(returned):
        return [returned]  # one empty value, rather than no value
    if isinstance(returned, list | tuple):
        return list(returned)
    return [] if returned is None else [returned]


def _is_empty_list(value: Any) -> bool:
    return isinstance(value, list) and not value


def _dtype_of(array: np.ndarray) -> tf.DType | None:
    if array.dtype.kind == "O":
        strings = all(isinstance(item, bytes | str) for item in array.flat)
        return tf.string if strings else None
    try:
        return tf.as_dtype(array.dtype.newbyteorder("="))
    except TypeError:
        return None


def _name(dtype: tf.DType) -> str:
    return _NAMES.get(dtype.name, str(dtype.name))


def _unshared(array: np.ndarray) -> np.ndarray:
    """An array whose memory the kernel may take over."""
    return array.copy() if array.ctypes.data % _ALIGNMENT == 0 else array

"""Registry entries for script ops on the host, which keep the contract of compiled calls.

In plain graph mode the stock kernels call the specs, and ops behave as TensorFlow's always did. A
compiled function promises more, on every route of its script ops: functions get their own arrays,
shapes are checked, and results and errors are as from a custom call. So the script ops of a
partitioned function get the tokens of other entries in TensorFlow's registry. Those of functions
that `hostcall.rewrite` returns keep their own, which may be valid in other processes; the kernel
asks for the other entry when it is made.

The stock kernel knows a few status codes, and adds a traceback whose frames are not the user's. So
it gets another exception, whose text holds the intended status code and text. host_script_op.cc
takes them out again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from hostcall._compiler import route_selection
from hostcall._functions import call_stats
from hostcall._ops import lookup, result_contract, result_shapes, tape_residuals
from hostcall._ops.array_specs import BorrowingSpec
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec, NumpySpec, ResidualMode
from hostcall._ops.result_contract import SeenShapes
from hostcall._ops.structures import Spec
from hostcall._tf import eager_execution, token_registry
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef
from hostcall_runtime import _errors, _interception, _library, _references, _runs, _watchdog
from hostcall_runtime._errors import LoweringError

T = TypeVar("T")
_numbers = itertools.count(1)

# Frames that the stock kernel, the entry in TensorFlow's registry and the text of an error need.
_FRAMES = 60


class CarriedError(StopIteration):
    """What the stock kernel gets in place of another exception: it logs all but StopIterations."""


def carrier_of(exception: BaseException, spec: CallbackSpec | None = None) -> CarriedError:
    """Return the exception to raise to the stock kernel in the place of a function's own."""
    if getattr(exception, "hostcall_message", False):
        code, text = getattr(exception, "code", _errors.INVALID_ARGUMENT), str(exception)
    else:
        code, text = _errors.describe(exception, spec)
    text = _errors.encodable(text)
    number = next(_numbers)
    text = f"[hostcall call {number}, status {code}] {text} [end of hostcall call {number}]"
    return CarriedError(text)


def raises_carrier(call: Callable[..., T]) -> Callable[..., T]:
    """Wrap a method that the stock kernel calls for a host op; its errors come out unchanged."""

    @functools.wraps(call)
    def run(self: Any, *args: Any) -> T:
        try:
            return call(self, *args)
        except BaseException as error:
            carrier = carrier_of(error, self.spec)
        try:
            raise carrier
        finally:
            del carrier  # it refers to this frame, and so to the call's arguments

    return run


def refusal(token: str, complaint: str) -> tuple[int, str] | None:
    """Return a status code and the reason why a nested call cannot be made, or None if it can."""
    # `token` leads to the entry to call; `complaint` is the problem of the thread's stack, or "".
    entry = token_registry.entry_of(token)
    spec = entry if isinstance(entry, CallbackSpec) else None
    if complaint:
        description = spec.description if spec else token
        return _errors.RESOURCE_EXHAUSTED, f"{complaint}This is {description}."
    try:
        _descend(_FRAMES)
    except RecursionError as error:
        return _errors.describe(error, spec)
    return None


def _descend(frames: int) -> None:
    if frames:
        _descend(frames - 1)


_ALIGNMENT = 32  # the stock kernel shares the memory of arrays that begin at a multiple of 64

# Copying fewer bytes takes less time than finding out where they begin.
_FEW_BYTES = 4096

# TensorFlow's casts to int4 leave the bits open in which NumPy has the sign.
_INT4 = tf.as_dtype("int4")
_INT4_ARRAY = np.dtype(_INT4.as_numpy_dtype)


def redirect(functions: Iterable[Any], are_regions: bool = False) -> None:
    """Give the script ops on the host tokens of entries that keep the contract above."""
    for function in functions:
        if attributes.CLUSTER in function.attr:
            continue
        make_stateful(function)
        for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
            _redirect(node, are_regions)


def make_stateful(function: FunctionDef) -> None:
    """Make stateless script ops stateful: with constant inputs, TensorFlow would run them once."""
    for node in defs.nodes_of(function, {"PyFuncStateless"}):
        node.op = "PyFunc"


def token_on_host(serialized: bytes) -> str:
    """Return the token of the entry for an op that runs on the host; its own if that must stay."""
    node = protos.node_def_pb2.NodeDef.FromString(serialized)
    token = lookup.token_of(node)
    # Gradients need eager calls' own tokens. A function that is not here yet may have to be
    # imported, which must not happen while TensorFlow makes a kernel.
    may_change = node.op == "PyFunc" and not token_registry.is_stand_in(token)
    if may_change and token_registry.find_present(token) is not None:
        with contextlib.suppress(LoweringError):  # the call raises it
            _redirect(node, is_in_region=False)
    return lookup.token_of(node)


def _redirect(node: NodeDef, is_in_region: bool) -> None:
    entry = lookup.entry_of(node)
    if entry is None:
        raise lookup.missing(node)
    if isinstance(entry, CallbackSpec):
        make = _EagerHostOp if isinstance(entry, EagerSpec) else _NumpyHostOp
        node.attr["token"].s = entry.host_op_entry(make, node, is_in_region).title.encode()


class _HostOp:
    """An entry of TensorFlow's registry for an op that calls a spec, which owns it."""

    def __init__(self, spec: CallbackSpec, node: NodeDef, is_in_region: bool) -> None:
        self.title = f"{spec.title}/{'region' if is_in_region else 'host'}"
        # The program of a region is compiled for the shapes that consumers demand.
        self._declared = result_shapes.demanded if is_in_region else result_shapes.known
        self.spec: Any = spec
        self.__hostcall_stands_for__ = spec
        self._node = node
        self._dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
        self._latest: _Expected | None = None
        self._run_of_op = _library.load("hostcall._tensorflow").run_of_op
        if route_selection.choose(node).wants_shape:
            spec.seen_shapes = SeenShapes()

    def _expected(self, shapes: list[Any]) -> _Expected:
        """Return the declared results for inputs of these shapes."""
        latest = self._latest
        if latest is None or latest.inputs != shapes:
            operands = [tf.TensorSpec(s, d) for s, d in zip(shapes, self._dtypes, strict=True)]
            declared = self._declared(self.spec, self._node, operands)
            contract = result_contract.of(self.spec.title, self.spec.description, declared)
            latest = self._latest = _Expected(shapes, declared, contract)
        return latest

    def _note(self, inputs: list[Any], results: list[list[int]]) -> None:
        """Keep the shapes of a call if they may help the user to declare them."""
        if self.spec.seen_shapes is not None:
            self.spec.seen_shapes.note(inputs, results)

    def _make(
        self, call: Callable[..., list[Any]], function: Callable[..., Any], arguments: Any
    ) -> list[Any]:
        """Make the call, with the settings of its run's starter, and count it if stats are on."""
        function = _runs.bind_to_run(function, self._run_of_op())
        number = _watchdog.begin(self.spec.description)
        try:
            if call_stats.is_collecting():
                return call_stats.counted(self.spec.description, call, function, arguments)
            return call(function, arguments)
        finally:
            _watchdog.end(number)


@dataclasses.dataclass
class _Expected:
    """The declared results for inputs of some shapes, and the contract that checks them."""

    inputs: list[Any]
    declared: list[Spec]
    contract: Any


class _NumpyHostOp(_HostOp, token_registry.EagerFunc):  # type: ignore[misc]
    """An EagerFunc of a function of arrays: the registry converts the results of others again."""

    def __init__(self, spec: NumpySpec, node: NodeDef, is_in_region: bool) -> None:
        super().__init__(spec, node, is_in_region)
        self._function = spec.host_function(ResidualMode.NO)
        self._unshared_inputs = _library.load("hostcall._tensorflow").unshared_inputs

    @raises_carrier
    def __call__(self, device: str | None, token: str, arrays: list[Any]) -> list[Any]:
        function = _interception.around(self.spec.site, self._function)
        return self._make(self._call, function, arrays)

    def _call(self, function: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        unshared = self._unshared_inputs()
        expected = self._expected([getattr(array, "shape", ()) for array in arrays])
        borrows = self.spec.options.only_reads
        own = [_own(array, borrows or bool(unshared >> i & 1)) for i, array in enumerate(arrays)]
        if isinstance(self.spec, BorrowingSpec):
            returned = self.spec.call_borrowing(function, own, expected.declared)
        else:
            returned = function(*own)
        results = expected.contract.arrays(returned)
        self._note(expected.inputs, [list(result.shape) for result in results])
        del returned  # which may refer to the results
        given = set() if borrows else set(map(id, own))
        own.clear()
        arrays.clear()  # only the function may still hold references
        return _unshared(results, given)


class _EagerHostOp(_HostOp, token_registry.EagerFunc):  # type: ignore[misc]
    """An entry for a function from EagerTensors to tensors."""

    def __init__(self, spec: EagerSpec, node: NodeDef, is_in_region: bool) -> None:
        super().__init__(spec, node, is_in_region)
        self._run = spec.dispatched()

    @raises_carrier
    def __call__(self, device: str | None, token: str, args: Sequence[Any]) -> list[Any]:
        return self._make(functools.partial(self._call, device), self._run, args)

    def _call(self, device: str | None, run: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        spec: EagerSpec = self.spec
        expected = self._expected([tensor.shape for tensor in args])
        args = [
            _tidy(arg) if dtype is _INT4 else arg
            for arg, dtype in zip(args, self._dtypes, strict=True)
        ]
        values, handle = spec.run_in_kernel(run, args, tape_residuals.keep_for_call)
        shapes = [value.shape.as_list() for value in values]
        expected.contract.check_shapes(shapes)
        self._note(expected.inputs, shapes)
        return spec.for_kernel(values, handle(), device)


def _own(array: Any, unshared: bool) -> object:
    """Return an array for a function to write to; scalars are not arrays, strings have no dtype."""
    if getattr(array, "dtype", None) == _INT4_ARRAY:
        return array.astype(np.int8).astype(array.dtype)
    if not isinstance(array, np.ndarray) or (unshared and array.nbytes >= _FEW_BYTES):
        return array
    return array.copy()


def _tidy(tensor: tf.Tensor) -> tf.Tensor:
    with eager_execution.eager_mode():
        return eager_execution.to_eager_tensor(_own(tensor.numpy(), unshared=False))


def _unshared(arrays: list[np.ndarray], given: set[int]) -> list[np.ndarray]:
    """Return arrays without gaps, whose memory the kernel may take over, and empty `arrays`."""
    unshared = []
    while arrays:
        is_alone = _references.last_is_alone(arrays)
        array = arrays.pop()
        if array.nbytes < _FEW_BYTES or not array.flags.c_contiguous:
            array = array.copy()
        # The kernel shares the memory of aligned arrays, and copies others. No other code can
        # write to an array that was in the list alone.
        elif array.ctypes.data % _ALIGNMENT == 0:
            owner = array.base is None or id(array) in given
            if not owner or not is_alone:
                array = array.copy()
        unshared.append(array)
    return unshared[::-1]

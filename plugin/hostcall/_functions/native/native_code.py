"""Functions that are native code, and need no Python when they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hostcall._functions import frameworks, nests, specs
from hostcall._functions.native.c_functions import CFunction
from hostcall._functions.native.ffi_handlers import FfiHandler
from hostcall._functions.specs import BoundedSpec, Declared
from hostcall_runtime._words import counted

# From the specs of the inputs to the arguments that a shape function takes.
Pack = Callable[[Sequence[Any]], Sequence[Any]]

# What cannot be declared of native code, and why.
_NOT_OF_NATIVE = {
    "timeout": "native code cannot be interrupted: it runs on XLA's own threads.",
    "borrow": "native code always reads the program's own memory.",
    "out": "native code always writes into the program's own memory.",
    "memo": "only Python can look results up. Declare it of a Python function that calls this one.",
    "executor": "a program calls native code itself, without Python's lock.",
    "retries": "a program calls native code itself, and no worker that could die.",
}


class NativeCode:
    """Native code in the place of a Python function, called with NumPy arrays.

    Attributes:
      code: where it is and what it takes.
      owner: the object that holds the code.
      result: what is declared of its results.
    """

    # Without a dictionary, which functools.update_wrapper would copy to another object.
    __slots__ = ("__weakref__", "code", "owner", "result")

    def __init__(self, code: CFunction | FfiHandler, owner: object, result: object) -> None:
        self.code = code
        self.owner = owner
        self.result = result

    @property
    def __name__(self) -> str:
        return self.code.name

    def __repr__(self) -> str:
        return f"<hostcall.native {self.code.name}>"

    def __call__(self, *arrays: Any, out: object = None) -> Any:
        """Calls the code with NumPy arrays, without Python's lock.

        Args:
          *arrays: an array for each input, or something that NumPy makes one of. They are passed as
            they are where they lie in memory row by row, and otherwise copied.
          out: the arrays to write the results to, one, or a structure of them like `result`. They
            have the dtypes and shapes of the results, and lie in memory row by row.

        Returns:
          The results, new arrays or `out`, in the structure of `result`.

        Raises:
          TypeError, ValueError: when the arrays are not what the code takes, or `out` is not what
            it returns.
          RuntimeError: when the code says that it has failed.
        """
        arguments = list(arrays)
        flat = nests.flatten(arguments)
        structure, results = self._prepared(flat, lambda leaves: nests.pack(arguments, leaves), out)
        return nests.pack(structure, results)

    def run(self, arrays: Sequence[Any], pack: Pack) -> list[np.ndarray]:
        """The results of one call, flat.

        Args:
          arrays: the inputs.
          pack: makes the shape function's arguments of their specs.
        """
        return self._prepared(arrays, pack, None)[1]

    def _prepared(
        self, values: Sequence[Any], pack: Pack, out: object
    ) -> tuple[Any, list[np.ndarray]]:
        inputs = [_to_array(value, self) for value in values]
        given = [_spec_of(array, self) for array in inputs]
        structure = self.structure(pack(given))
        declared = nests.flatten(structure)
        if wrong := self.complaint(given, declared):
            raise TypeError(f"hostcall.native: {wrong}")
        results = _allocated(declared) if out is None else self._given(out, declared)
        self.code.run(inputs, results, NativeCode(self.code, self.owner, declared))
        return structure, results

    def structure(self, inputs: Sequence[Any]) -> Any:
        """The structure of the results' specs for inputs of these specs.

        Raises:
          TypeError: when a result is declared without a dtype.
        """
        result = self.result
        return nests.map_leaves(specs.checked, result(*inputs) if callable(result) else result)

    def complaint(self, inputs: Sequence[Any], results: Sequence[Any]) -> str:
        """What is wrong with calling the code for these inputs and results; "" where nothing is."""
        for kind, listed in (("input", inputs), ("result", results)):
            for index, spec in enumerate(listed):
                if wrong := _unfit(spec):
                    return f"{kind} {index} of {self.code.name} {wrong}"
        return self.code.complaint([*map(specs.plain, inputs)], [*map(specs.plain, results)])

    def _given(self, out: object, declared: Sequence[Any]) -> list[np.ndarray]:
        arrays = nests.flatten(out)
        if len(arrays) != len(declared):
            raise ValueError(
                f"hostcall.native: {self.code.name} has {counted(len(declared), 'result')}, and "
                f"out holds {counted(len(arrays), 'array')}."
            )
        for index, (array, spec) in enumerate(zip(arrays, declared, strict=True)):
            plain = specs.plain(spec)
            dtype, shape = plain.dtype, plain.shape
            fits = isinstance(array, np.ndarray) and (array.dtype, array.shape) == (dtype, shape)
            if not fits or not array.flags.carray:
                raise ValueError(
                    f"hostcall.native: result {index} of {self.code.name} is to go to an array of "
                    f"dtype {dtype.name} and shape {shape} that can be written to and lies in "
                    f"memory row by row, and out holds {_described(array)}."
                )
        return arrays


def contradiction(declared: Sequence[Declared], results: Sequence[Declared]) -> str:
    """What to say where the declared results are not those of a call."""
    return (
        f"hostcall.native was told that the results are {_listed(declared)}, and here they are "
        f"{_listed(results)}. Correct one of them."
    )


def check_declared(native: NativeCode, declared: Mapping[str, Any]) -> None:
    """Checks that nothing is declared that cannot hold of native code.

    Raises:
      ValueError: naming what is.
    """
    if not declared["wait"]:
        raise ValueError(
            f"hostcall: wait=False was declared of {native!r}, but a program calls native code "
            "itself, and waits for it. Take it away, or declare it of a Python function that calls "
            "this one."
        )
    if declared["memory"] != "host":
        raise ValueError(
            f"hostcall: memory= was declared of {native!r}, but a program calls native code "
            "itself, with its own memory. Take it away."
        )
    for option, why in _NOT_OF_NATIVE.items():
        if declared[option]:
            raise ValueError(
                f"hostcall: {option}= was declared of {native!r}, but {why} Take it away."
            )


def _to_array(value: object, who: NativeCode) -> np.ndarray:
    side = frameworks.tensorflow()
    if side is not None and side.is_symbolic(value):
        raise TypeError(
            f"hostcall.native: {who.code.name} was called with {value}, which has no value yet, "
            "and with out=, which is for NumPy arrays alone. Leave out= away."
        )
    array: np.ndarray = np.require(value, requirements=["C", "A", "E"])
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _spec_of(array: np.ndarray, who: NativeCode) -> Any:
    try:
        return specs.of_array(array)
    except TypeError:
        raise TypeError(
            f"hostcall.native: {who.code.name} was called with an array of dtype {array.dtype}, "
            "which TensorFlow has no values of."
        ) from None


def _unfit(spec: Declared) -> str:
    """Why native code cannot have such an array, or ""."""
    if isinstance(spec, BoundedSpec):
        return (
            f"has a size that is only bounded, {spec}, and native code wants every size when XLA "
            "compiles. Pad it, or call a Python function."
        )
    plain = specs.plain(spec)
    dtype = plain.dtype
    if dtype.kind not in "biufcV" or dtype.fields is not None or dtype.name in ("int4", "uint4"):
        return f"is of dtype {spec.dtype.name}, which native code cannot have. Cast it before."
    if plain.shape is None or None in plain.shape:
        return (
            f"has the shape {spec.shape}: not every size is known. Let `result` be a function from "
            "the inputs' specs that says all of them."
        )
    return ""


def _allocated(declared: Sequence[Any]) -> list[np.ndarray]:
    plain = map(specs.plain, declared)
    return [np.empty(spec.shape or (), spec.dtype) for spec in plain]


def _listed(declared: Sequence[Declared]) -> str:
    return ", ".join(f"{spec.dtype.name} of shape {spec.shape}" for spec in declared) or "none"


def _described(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    kind = "one" if value.flags.carray else "one that is read-only or does not lie so"
    return f"{kind} of dtype {value.dtype.name} and shape {value.shape}"

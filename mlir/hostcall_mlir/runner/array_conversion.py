"""The arrays that a loaded program takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.program.dtypes import dtype_of
from hostcall_mlir.program.manifest_schema import Manifest, Spec
from hostcall_mlir.program.signature import show
from hostcall_mlir.program.structures import type_name


def to_device(value: Any, spec: Spec, device: jax.Device, what: str) -> jax.Array:
    """An array on a device, of just the dtype and shape of a spec.

    Args:
      value: an array of NumPy's or JAX's, or a number, which takes the dtype if it is of its kind.
      spec: what it has to be.
      device: where it has to be.
      what: what it is, for errors: "argument x of predict".

    Raises:
      TypeError: when it is no array.
      ValueError: when it is of another dtype or shape.
    """
    if not isinstance(value, jax.Array):
        value = _to_numpy(value, spec, what)
    elif isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{what} is {value}, which JAX traces. A loaded program is compiled already, and no "
            "part of another: call it outside of jax.jit, jax.grad and jax.vmap."
        )
    if value.dtype != dtype_of(spec.dtype) or value.shape != spec.shape:
        raise ValueError(_differs(value, spec, what))
    if isinstance(value, jax.Array) and value.devices() == {device}:
        return value
    return put(value, device)


def put(value: Any, device: jax.Device) -> jax.Array:
    """An array of JAX's or NumPy's on a device, of the dtype that it has."""
    if isinstance(value, jax.Array):
        return jax.device_put(value, device)
    return private.put(value, device)


def without_padding(outputs: Sequence[jax.Array], manifest: Manifest) -> list[jax.Array]:
    """The outputs that are results, those of bounded size cut to their true sizes."""
    slices: dict[int, list[slice]] = {}
    for entry, output in zip(manifest.outputs, outputs, strict=True):
        if entry.kind == "size":
            assert entry.of is not None
            assert entry.dim is not None
            rank = len(manifest.outputs[entry.of].spec.shape)
            slices.setdefault(entry.of, [slice(None)] * rank)[entry.dim] = slice(int(output))
    results = [*outputs[: len(manifest.outputs_of("result"))]]
    for number, cut in slices.items():
        # By NumPy: JAX would compile a program for each size that comes.
        padded = np.asarray(results[number])
        results[number] = put(padded[tuple(cut)].copy(), results[number].device)
    return results


def _to_numpy(value: Any, spec: Spec, what: str) -> np.ndarray:
    if isinstance(value, bool | int | float | complex) and spec.shape == ():
        dtype = dtype_of(spec.dtype)
        number = np.asarray(value)
        if _kind(number.dtype) <= _kind(dtype):
            try:
                return np.asarray(value, dtype)
            except OverflowError as error:
                raise ValueError(f"{what} is {value}: {error}") from error
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{what} is no array: {error}") from error
    if array.dtype.kind in "OSUT":
        found = type_name(value)
        if isinstance(value, np.ndarray):
            found = f"an array of dtype {array.dtype}"
        raise TypeError(f"{what} is {found}, which is no array of numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _kind(dtype: np.dtype) -> int:
    """0 to 3 for bools, integers, floats and complex numbers: each kind holds those before it."""
    kinds = (np.bool_, np.integer, np.floating)
    return next((i for i, kind in enumerate(kinds) if jax.dtypes.issubdtype(dtype, kind)), 3)


def _differs(value: Any, spec: Spec, what: str) -> str:
    found = show(Spec(value.dtype.name, tuple(value.shape)))
    text = f"{what} is {found}, and the program is compiled for {show(spec)}. "
    if value.shape != spec.shape:
        return f"{text}Export it for arrays of that shape, or pass one of this."
    wanted = f"np.asarray(x, np.{spec.dtype})"
    if hasattr(jax.numpy, spec.dtype) and not hasattr(np, spec.dtype):
        wanted = f"np.asarray(x, jax.numpy.{spec.dtype})"
    if {spec.dtype, value.dtype.name} & {"int64", "uint64", "float64", "complex128"}:
        return f"{text}Pass {wanted}: NumPy has 64-bit numbers where JAX, by default, has not."
    return f"{text}Pass {wanted}, or export it for arrays of that dtype."

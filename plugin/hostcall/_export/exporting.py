"""The export of compiled functions as programs that other processes can run."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hostcall import _versions
from hostcall._compiler import ordering
from hostcall._compiler.bounded import analysis
from hostcall._export import exported_callbacks
from hostcall._export import function_interface as exported
from hostcall._tf import autograph, concrete_functions
from hostcall._tf import function_defs as defs
from hostcall._tf.types import ConcreteFunction
from hostcall_mlir import PassError, Program
from hostcall_mlir.exporting import files, manifests, portable
from hostcall_runtime import _locks
from hostcall_runtime._errors import NotExportableError

# A tf.function may call it, so autograph must not convert it.
autograph.leave_alone(Program.save)

_lock = _locks.new_lock()

_ASSIGNS = """\
{place}: it assigns {names}, which a constant cannot be. Export it with variables="inputs", so that
whoever loads it has the new values, or export a function without the assignment."""

_BOUNDED = """\
{place}: it cannot be one program:
{reasons}
Export a function without such an op, or do its work in the callback."""


def export(function: Any, specs: Sequence[Any], variables: str) -> Program:
    """Export a function; see `hostcall.export`."""
    if variables not in ("constants", "inputs"):
        raise ValueError(
            f"hostcall.export: variables={variables!r} is neither 'constants' nor 'inputs'."
        )
    traced, name, place = exported.trace(function, specs)
    arguments = exported.argument_structure(traced, place)
    exported.check(traced, place)
    captured = exported.captured_by(traced, place)
    module = _parse(_compile(traced, place), captured, place)
    updates = portable.take_updates(module)
    kept = captured.variables if variables == "inputs" else {}
    if assigned := [captured.names[number] for number in updates.values() if number not in kept]:
        raise NotExportableError(_ASSIGNS.format(place=place, names=", ".join(map(repr, assigned))))
    callbacks = exported_callbacks.find(portable.callbacks_in(module), place)
    constants = captured.values_but_for(kept)
    try:
        sizes = portable.finish(module, name, constants, callbacks.with_states)
        called = portable.set_names(module, callbacks.names)
        artifact = portable.artifact_of(module, _versions.STABLEHLO)
    except PassError as error:
        raise NotExportableError(
            f"{place}: it has parts that cannot be exported:\n{error}"
        ) from error
    results = portable.signature_of(module).results
    types = [spec for type_ in results if (spec := manifests.spec_of(type_))]
    packages = {name: importlib.metadata.version(name) for name in ("hostcall", "jaxlib")}
    manifest = manifests.Manifest(
        made_by=packages | {"tensorflow": tf.__version__},
        function=name,
        inputs=(*exported.arguments(traced), *exported.variables(kept, captured)),
        arguments=arguments,
        outputs=exported.outputs(traced, types, updates, sizes, captured),
        results=exported.result_structure(traced, place),
        callbacks=exported_callbacks.with_calls(callbacks, module, called),
    )
    if problems := [*manifests.mismatches(module, manifest)]:
        raise NotExportableError(f"{place}: it cannot be exported:\n" + "\n".join(problems))
    files.trust(artifact)
    values = {captured.names[number]: variable.numpy() for number, variable in kept.items()}
    return Program(artifact, portable.text_of(module), manifest, values)


def _compile(traced: ConcreteFunction, place: str) -> str:
    """Compile to StableHLO, with the callbacks in program order."""
    library = defs.library_of(traced, traced.graph.as_graph_def())
    name = traced.function_def.signature.name
    if blocked := analysis.find(library, name):
        reasons = "\n".join(f"    {reason}" for reason in dict.fromkeys(blocked.values()))
        raise NotExportableError(_BOUNDED.format(place=place, reasons=reasons))
    marked = analysis.marked(library, name, whole=True, compiled=True)
    # XLA's text does not pass the kernel creator, which otherwise substitutes ordered functions.
    ordered, name = ordering.order_side_effects(marked, name, "__exported")
    ordered.function.extend(analysis.new_functions(library, marked))
    try:
        with _lock:  # another thread may export the same function
            return concrete_functions.stablehlo_of(traced, list(ordered.function), name)
    except (ValueError, tf.errors.OpError) as error:
        # XLA's message without TensorFlow's frame around it.
        reason = re.sub(r"^Failed getting HLO text: '(.*)'$", r"\1", str(error), flags=re.DOTALL)
        raise NotExportableError(f"{place}: XLA cannot compile it:\n{reason}") from error


def _parse(text: str, captured: exported.Captured, place: str) -> Any:
    """Parse the program into MLIR, whose inputs are the arguments, constants and variables."""
    module = portable.parse(text)
    if len(portable.signature_of(module).inputs) != captured.inputs:
        raise NotExportableError(f"{place}: XLA has left out arguments, so their order is unknown.")
    return module

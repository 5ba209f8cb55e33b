"""The export of compiled functions as programs that other processes can run."""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import tensorflow as tf

from hostcall import _versions
from hostcall._compiler import refusals
from hostcall._compiler.plan import BoundedSizeError
from hostcall._export import graph_semantics
from hostcall._functions import callback, source_location
from hostcall._functions.user_function import Source
from hostcall._ops import callback_spec, result_shapes
from hostcall._saved.functions import qualified_name, reason
from hostcall._tf import autograph, concrete_functions, features
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import ConcreteFunction
from hostcall_mlir import PassError, Program
from hostcall_mlir.exporting import (
    custom_calls,
    files,
    function_lookup,
    manifests,
    portable,
    structures,
)
from hostcall_runtime import _locks
from hostcall_runtime._errors import LoweringError, NotExportableError
from hostcall_runtime._registry import target_of

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

_CONCATENATES = """\
{place}: op '{op}' joins an array of fixed size and, behind it, one whose size is only bounded, and
TensorFlow has no StableHLO for it. Join them in the callback, or begin with the other one."""


def export(function: object, specs: Sequence[Any], variables: str) -> Program:
    """Export a function; see `hostcall.export`."""
    if variables not in ("constants", "inputs"):
        raise ValueError(
            f"hostcall.export: variables={variables!r} is neither 'constants' nor 'inputs'."
        )
    traced, name, place = _trace(function, specs)
    arguments = _argument_structure(traced, place)
    _check(traced, place)
    captured = _captured_by(traced, place)
    module = _compiled(traced, captured, place)
    updates = portable.take_updates(module)
    kept, fixed = (captured.variables, {}) if variables == "inputs" else ({}, captured.variables)
    if assigned := [captured.names[number] for number in updates.values() if number not in kept]:
        raise NotExportableError(_ASSIGNS.format(place=place, names=", ".join(map(repr, assigned))))
    callbacks = _find_callbacks(portable.callbacks_in(module), place)
    held = captured.constants | {number: one.numpy() for number, one in fixed.items()}
    try:
        sizes = portable.finish(module, name, held, callbacks.with_states)
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
        inputs=_inputs(traced, kept, captured),
        arguments=arguments,
        outputs=_outputs(traced, types, updates, sizes, captured),
        results=_structure_of(traced.structured_outputs, f"{place}: a result"),
        callbacks=_with_calls(callbacks, module, called),
    )
    if problems := [*manifests.mismatches(module, manifest)]:
        raise NotExportableError(f"{place}: it cannot be exported:\n" + "\n".join(problems))
    files.trust(artifact)
    values = {captured.names[number]: variable.numpy() for number, variable in kept.items()}
    return Program(artifact, portable.text_of(module), manifest, values)


def _compiled(traced: ConcreteFunction, captured: _Captured, place: str) -> object:
    """Compile to an MLIR module of StableHLO, with the callbacks in program order."""
    library = concrete_functions.library_of(traced, traced.graph.as_graph_def())
    try:
        refusals.check_lists(library)
    except LoweringError as error:
        reason = str(error).removeprefix("hostcall: ")
        raise NotExportableError(f"{place}: {reason}") from error
    try:
        whole = graph_semantics.written(library, traced, place)
    except BoundedSizeError as error:
        reasons = "\n".join(f"    {reason}" for reason in dict.fromkeys(error.blocked.values()))
        raise NotExportableError(_BOUNDED.format(place=place, reasons=reasons)) from None

    def text(stage: Literal["hlo", "stablehlo"]) -> str:
        try:
            with _lock:  # another thread may export the same function
                return concrete_functions.compiler_ir(
                    traced, list(whole.library.function), whole.name, stage
                )
        except (ValueError, tf.errors.OpError) as error:
            raise NotExportableError(f"{place}: XLA cannot compile it:\n{_cause(error)}") from error

    _check_concatenations(text("hlo"), place)
    try:
        module = portable.parse(text("stablehlo"))
    except PassError as error:
        raise NotExportableError(
            f"{place}: TensorFlow has no StableHLO for an op of it:\n{error}"
        ) from error
    if len(portable.signature_of(module).inputs) != captured.inputs:
        raise NotExportableError(f"{place}: XLA has left out arguments, so their order is unknown.")
    return module


def _cause(error: Exception) -> str:
    """Return XLA's message without TensorFlow's frame around it."""
    text = re.sub(r"^Failed getting HLO text: '(.*)'$", r"\1", str(error), flags=re.DOTALL)
    if text.startswith("hostcall: "):  # TensorFlow adds nodes, and how to dump graphs
        text = result_shapes.without_routes(text.partition("\n\t")[0])
    return text


def _check_concatenations(hlo: str, place: str) -> None:
    """Raise an error for a concatenation that cannot be StableHLO."""
    # TensorFlow ends the process where a size is bounded, and that of the first operand is not.
    bounded, fixed = r"\w+\[[^\]]*<=[^\]]*\]", r"\w+\[[\d,]*\]"
    if found := re.search(rf"= {bounded}\S* concatenate\({fixed}.*", hlo):
        op = re.search(r'op_name="([^"]*)"', found[0])
        raise NotExportableError(_CONCATENATES.format(place=place, op=op[1] if op else "concat"))


@dataclasses.dataclass(frozen=True)
class _Captured:
    """The tensors and variables that a function captures, by their numbers among the inputs."""

    inputs: int  # of the program: arguments, constants and variables
    constants: dict[int, np.ndarray]
    variables: dict[int, tf.Variable]
    names: dict[int, str]  # unique names of the variables


def _trace(function: Any, specs: Sequence[Any]) -> tuple[Any, str, str]:
    """Return the concrete function for arguments like `specs`, its name and its description."""
    if not isinstance(function, concrete_functions.ConcreteFunction):
        _check_function(function)
        traced = _traced_for(function, specs)
    elif specs:
        raise ValueError(
            "hostcall.export: a concrete function is for the dtypes and shapes that it was traced "
            "with, and takes no others: hostcall.export(concrete)."
        )
    else:
        traced = function
    python_function = autograph.without_autograph(getattr(function, "python_function", function))
    place = f"hostcall.export of {source_location.of_function(python_function)}"
    name = getattr(python_function, "__name__", type(function).__name__)
    return traced, str(name), place


def _check_function(function: Any) -> None:
    if hasattr(function, "trace") and hasattr(function, "lower"):
        raise TypeError(
            f"hostcall.export: {function!r} is a function of JAX. Export what TensorFlow has of "
            "it: hostcall.export(hostcall.jax.to_tf(function), ...)."
        )
    classes = type(getattr(function, "__self__", None)).__mro__
    is_of_keras = any(kind.__module__.startswith("keras.") for kind in classes)
    if is_of_keras and getattr(function, "__name__", "") in ("fit", "evaluate", "predict"):
        raise TypeError(
            f"hostcall.export: {function.__name__} of a Keras model is a loop in Python over "
            "batches. Export what it runs for one: the model, hostcall.export(model, ...), which "
            "gives predictions, or a tf.function of yours."
        )
    if not callable(function) and not hasattr(function, "get_concrete_function"):
        raise TypeError(
            f"hostcall.export wants a tf.function or a function to make one of, and not "
            f"{function!r}."
        )


def _traced_for(function: Any, specs: Sequence[Any]) -> ConcreteFunction:
    """Return the concrete function for exactly these specs."""
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function)
    traced: ConcreteFunction = function.get_concrete_function(*specs)
    is_wider = specs and _unknown_sizes(traced)  # from an earlier call, or the input signature
    if is_wider and isinstance(function, tf.types.experimental.PolymorphicFunction):
        again = tf.function(function.python_function, autograph=autograph.uses_autograph(function))
        traced = again.get_concrete_function(*specs)
    return traced


def _check(traced: ConcreteFunction, place: str) -> None:
    """Raise a NotExportableError if an argument has an unknown size, or XLA lacks a dtype."""
    for leaf in _unknown_sizes(traced):
        raise NotExportableError(
            f"{place}: argument '{leaf.name}' has the shape {leaf.shape}, and a program is "
            "compiled for sizes that are known. Export it with the size that it is to run "
            "with, as hostcall.export(function, tf.TensorSpec([32, 3], tf.float32))."
        )
    arguments = [(f"argument '{leaf.name}'", leaf.dtype) for leaf in _arguments_of(traced)]
    results = [(f"result {i}", result.dtype) for i, result in enumerate(_results_of(traced))]
    for what, dtype in arguments + results:
        if dtype in (tf.string, tf.resource, tf.variant):
            raise NotExportableError(
                f"{place}: {what} is of dtype {dtype.name}, which compiled programs do not have. "
                "Export what is between such tensors: a function of numbers."
            )
        if dtype.as_datatype_enum in defs.UNKNOWN_TO_XLA:
            raise NotExportableError(
                f"{place}: {what} is of dtype {dtype.name}, for which TensorFlow has no XLA "
                "kernels, and no casts. Let the function take and return int8, or floats, and "
                "convert the arrays outside of it: array.astype(np.int8)."
            )


def _unknown_sizes(traced: ConcreteFunction) -> list[tf.TensorSpec]:
    return [leaf for leaf in _arguments_of(traced) if not leaf.shape.is_fully_defined()]


def _arguments_of(traced: ConcreteFunction) -> list[tf.TensorSpec]:
    """Return the specs of a concrete function's arguments, in the order of its inputs."""
    leaves = tf.nest.flatten(traced.structured_input_signature, expand_composites=True)
    return [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]


def _inputs(
    traced: ConcreteFunction, kept: Mapping[int, tf.Variable], captured: _Captured
) -> tuple[manifests.Input, ...]:
    """Describe the arguments and the variables as inputs of the program."""
    arguments = [
        manifests.Input("argument", leaf.name or f"argument_{number}", _spec_of(leaf))
        for number, leaf in enumerate(_arguments_of(traced))
    ]
    variables = [
        manifests.Input("variable", captured.names[number], _spec_of(variable))
        for number, variable in kept.items()
    ]
    return (*arguments, *variables)


def _outputs(
    traced: ConcreteFunction,
    types: Sequence[manifests.Spec],
    updates: Mapping[int, int],
    sizes: Sequence[tuple[int, int]],
    captured: _Captured,
) -> tuple[manifests.Output, ...]:
    """Describe the program's outputs: results, new values of variables, and true sizes."""
    # `updates` has the input numbers of the variables that get new values. Each output after these
    # is the size in `sizes` of another one, in a dimension.
    found, results = [], _results_of(traced)
    for number, spec in enumerate(types):
        bounded = tuple(dim for of, dim in sizes if of == number)
        if number < len(results):
            name = results[number].op.name
            found.append(
                manifests.Output("result", name, manifests.Spec(spec.dtype, spec.shape, bounded))
            )
        elif number in updates:
            found.append(manifests.Output("variable", captured.names[updates[number]], spec))
        else:
            of, dim = sizes[number - len(types) + len(sizes)]
            found.append(manifests.Output("size", f"size of dimension {dim}", spec, of, dim))
    return tuple(found)


def _results_of(traced: ConcreteFunction) -> list[tf.Tensor]:
    """Return the function's results, without those that TensorFlow adds for branch gradients."""
    leaves = tf.nest.flatten(traced.structured_outputs, expand_composites=True)
    return list(traced.outputs[: sum(tf.is_tensor(leaf) for leaf in leaves)])


def _spec_of(value: tf.TensorSpec) -> manifests.Spec:
    return manifests.Spec(np.dtype(value.dtype.as_numpy_dtype).name, tuple(value.shape.as_list()))


def _argument_structure(traced: ConcreteFunction, place: str) -> structures.Structure:
    """Return the structure of the positional arguments; Python values in it are fixed."""
    args, kwargs = traced.structured_input_signature
    if _has_tensors(kwargs):
        raise NotExportableError(
            f"{place}: {', '.join(map(repr, kwargs))} can be given by name alone, and a program "
            "takes its arguments by position. Export a function that takes them by position."
        )
    args = list(args)
    while args and not _has_tensors(args[-1]):
        args.pop()  # for example training=False
    return _structure_of(tuple(args), f"{place}: an argument")


def _has_tensors(value: object) -> bool:
    return any(isinstance(leaf, tf.TypeSpec) for leaf in tf.nest.flatten(value))


def _structure_of(value: object, what: str) -> structures.Structure:
    """Return a value's structure, its tensors numbered as TensorFlow does, other values as None."""
    leaves = tf.nest.flatten(value)
    for leaf in leaves:
        if isinstance(leaf, features.CompositeTensor | tf.TypeSpec) and not isinstance(
            leaf, tf.Tensor | tf.TensorSpec
        ):
            raise NotExportableError(
                f"{what} is a {type(leaf).__name__}, which is not a single tensor. Pass what it is "
                "made of: of a tf.RaggedTensor its values and row_splits."
            )
    numbers = iter(range(len(leaves)))
    numbered = [
        next(numbers) if tf.is_tensor(leaf) or isinstance(leaf, tf.TensorSpec) else None
        for leaf in leaves
    ]
    return structures.structure_of(tf.nest.pack_sequence_as(value, numbered), what)


def _captured_by(traced: ConcreteFunction, place: str) -> _Captured:
    """Return the captures of a function; raise a NotExportableError unless XLA has all of them."""
    known = {id(variable.handle): variable for variable in traced.variables}
    first = len(traced.inputs) - len(traced.captured_inputs)
    # TensorFlow writes values without elements into the program, instead of passing them.
    passed = [
        tensor
        for tensor in traced.captured_inputs
        if not _holds_values(tensor) or tensor.shape.num_elements() != 0
    ]
    captured = _Captured(first + len(passed), {}, {}, {})
    for number, tensor in enumerate(passed, first):
        if _holds_values(tensor):
            captured.constants[number] = tensor.numpy()
            continue
        variable = known.get(id(tensor))
        if variable is None:
            raise NotExportableError(
                f"{place}: it uses {tensor!r}, which is neither a tensor nor a tf.Variable, "
                "but a lookup table, for example, or a dataset. XLA has no such things: use it "
                "outside of the function, and pass what comes of it to the function."
            )
        captured.variables[number] = variable
        name = variable.name.partition(":")[0]
        names = itertools.chain([name], (f"{name}_{count}" for count in itertools.count(1)))
        captured.names[number] = next(n for n in names if n not in captured.names.values())
    return captured


def _holds_values(tensor: tf.Tensor) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant)


def _source_of(callback_id: int) -> Source:
    """Return the callback of an id; raise a NotExportableError if it cannot be exported."""
    spec, mode = callback_spec.spec_of_callback_id(callback_id)
    if spec is not None:
        return _of_spec(spec, mode)
    target = target_of(callback_id)
    if target is None or isinstance(target.origin, callback_spec.Origin):
        raise NotExportableError("a callback that is gone")
    if target.origin is None:
        raise NotExportableError(
            f"{target.description}: programs can be exported with calls of hostcall.jax.call and "
            "of hostcall.callback objects, and not with JAX's own callbacks, whose results have no "
            "structure that another process could know"
        )
    source: Source = target.origin.source()
    return source


def _of_spec(spec: callback_spec.CallbackSpec, mode: callback_spec.ResidualMode) -> Source:
    if mode or (isinstance(spec, callback_spec.EagerSpec) and spec.order):
        raise NotExportableError(
            f"{spec.description}: the program computes its gradient, which only the process "
            "that made the call can do. Give it a gradient of its own: hostcall.callback(..., "
            "grad=...), or export a function without the gradient"
        )
    if spec.inputs.composite or spec.outputs.composite:
        raise NotExportableError(
            f"{spec.description}: it takes or returns tensors that are made of several"
        )
    # The numbers of tensors in their place are the leaves of a structure.
    arguments = tuple(spec.inputs.pack([*range(spec.inputs.size)]))
    results = spec.outputs.pack([*range(len(spec.outputs.dtypes))])
    return Source(
        spec.user,
        structures.structure_of(arguments, f"an argument of {spec.description}"),
        structures.structure_of(results, f"a result of {spec.description}"),
        tuple(spec.outputs.dtypes) if spec.takes_tensors else (),
        isinstance(spec, callback_spec.EagerSpec) and spec.differentiable,
    )


_NO_NAME = """\
{place}: another process could not find

{listed}

Define each at the top level of a module that the other process can import too, and use it from
there. Or give it a name, and the function itself where the program is loaded:

    hostcall.callback(function, name="solver", result=...)            # here, in the program
    hostcall_mlir.load(directory, callbacks={{"solver": function}})     # there"""


@dataclasses.dataclass(frozen=True)
class _Callbacks:
    """The callbacks of a program, by callback id."""

    names: dict[int, str]  # in the program
    entries: dict[str, manifests.ManifestCallback]  # without the calls, by name
    places: dict[int, str | None]  # `file:line` of the calls
    with_states: frozenset[int]  # those whose last result is the handle of a tape residual


def _find_callbacks(numbers: Iterable[int], place: str) -> _Callbacks:
    """Name the callbacks of these ids, and describe them; one error lists all that have none."""
    sources: dict[int, Source] = {}
    entries: dict[int, manifests.ManifestCallback] = {}
    problems: dict[str, None] = {}
    for number in numbers:
        try:
            sources[number] = _source_of(number)
            entries[number] = _entry(sources[number])
        except NotExportableError as error:
            problems[str(error)] = None
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise NotExportableError(_NO_NAME.format(place=place, listed=listed))
    with_states = frozenset(number for number, source in sources.items() if source.has_state)
    exported = _Callbacks({}, {}, {}, with_states)
    conventions: dict[str, list[Any]] = collections.defaultdict(list)
    for number, source in sources.items():
        entry = entries[number]
        stem = source.user.given_name or str(entry.function)
        convention = entry, source.dtypes
        if convention not in conventions[stem]:
            conventions[stem].append(convention)
        index = conventions[stem].index(convention)
        name = f"{stem}#{index + 1}" if index else stem
        exported.entries[name] = msgspec.structs.replace(entry, name=name)
        exported.names[number] = name
        # Without the directories, which exist on one machine only.
        called_at = source_location.split_description(source.user.description)[3]
        exported.places[number] = called_at.rpartition("/")[2] or None
    return exported


def _with_calls(
    exported: _Callbacks, module: object, numbers: Sequence[int]
) -> tuple[manifests.ManifestCallback, ...]:
    """Return the manifest's entries with their calls; `numbers` has the id of each host call."""
    calls: dict[str, list[Any]] = {name: [] for name in exported.entries}
    for op, number in zip(custom_calls.host_calls(module), numbers, strict=True):
        call = manifests.call_of(op, exported.places[number])
        calls[exported.names[number]].append(call)
    return tuple(
        msgspec.structs.replace(entry, calls=tuple(calls[name]))
        for name, entry in exported.entries.items()
        if calls[name]  # the others were in dead code
    )


def _found_at(source: Source, function: Any) -> str | None:
    """Return the function's qualified name; None if the user has named the callback."""
    if source.user.given_name is None:
        name = qualified_name(function)
        if name is None:
            raise NotExportableError(f"{source.user.description}: {reason(function)}")
        return name
    if not custom_calls.is_name(source.user.given_name):
        raise NotExportableError(
            f"{source.user.description}: its name {source.user.given_name!r} has spaces or "
            "brackets in it"
        )
    return None


def _entry(source: Source) -> manifests.ManifestCallback:
    """Return a callback's manifest entry, without its name and calls."""
    called, names, fixed = callback.parts(source.user.function)
    declared = source.user.options
    return manifests.ManifestCallback(
        name="",
        function=_found_at(source, called),
        kind="eager" if source.user.takes_tensors else "numpy",
        signature=function_lookup.signature_of(called),
        arguments=source.arguments,
        results=source.results,
        borrow=declared.borrow,
        out=declared.out,
        timeout=declared.timeout,
        concurrent=declared.concurrent,
        keywords=names,
        fixed={name: _written(name, value, source) for name, value in fixed.items()},
    )


def _written(name: str, value: object, source: Source) -> str:
    """Return a value as a Python literal that gives the value back."""
    text = callback.literal(value)
    if text is not None:
        return text
    raise NotExportableError(
        f"{source.user.description}: {name}={value!r} is passed by keyword, and a program can only "
        "hold None, bools, numbers, strings, and tuples, lists and dicts of these. Make it the "
        f"default of {name}, or choose it in the function by a string"
    )

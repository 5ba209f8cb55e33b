"""The Python functions that an exported program calls: their lookup, and wrappers for them."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import hostcall_runtime
from hostcall_mlir.program import structures
from hostcall_mlir.program.manifests import Manifest, ManifestCallback, ProgramError, listed
from hostcall_runtime import _permissions
from hostcall_runtime._errors import ResultError, counted, leave_out_frames_of
from hostcall_runtime._keyword_call import KeywordCall

# Tracebacks then begin with the user's functions.
leave_out_frames_of(os.path.dirname(__file__))

Function = Callable[..., Any]

# The attribute by which objects of `hostcall.callback` hold their function.
_MARK = "__hostcall_function__"
_NUMBERED = re.compile(r"#[1-9]\d*$")


class _NotFoundError(Exception):
    """A failed search for a function or a class; the text gives the reason and the remedy."""


class _NotAllowedError(_NotFoundError):
    """A search that needs the user's permission, which `line` gives."""

    def __init__(self, reason: str, line: str) -> None:
        super().__init__(reason)
        self.line = line


def signature_of(function: Function) -> str | None:
    """Return a function's parameter names and kinds, `(x, y=…)`, None if Python knows none."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.empty if parameter.default is parameter.empty else _Ellipsis(),
        )
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(parameters))


class _Ellipsis:
    """A placeholder for a default, which may be of any length, and change."""

    def __repr__(self) -> str:
        return "…"


class _Source(NamedTuple):
    """Where the functions of a program come from."""

    given: Mapping[str, Any]  # the user's functions and namedtuples
    imports: bool  # whether the others are imported
    tensors: bool  # whether functions of TensorFlow's tensors can be called

    @property
    def package(self) -> str:
        """Return the package that the user loads the program with."""
        return "hostcall" if self.tensors else "hostcall_mlir"


def find_functions(
    manifest: Manifest, given: Mapping[str, Function], imports: bool, tensors: bool = False
) -> tuple[dict[str, Function], dict[str, type]]:
    """Find the functions of a program's callbacks and the namedtuples in its structures by name."""
    # `given` has the user's functions, by the names of callbacks with or without a number, and
    # namedtuples. One ProgramError lists all that is wrong.
    if not isinstance(given, Mapping):
        raise TypeError(
            f"callbacks is {given!r}, and has to be a dict from the names of callbacks to "
            "functions."
        )
    source = _Source(given, imports, tensors)
    problems: dict[str, _NotFoundError | None] = {}
    functions: dict[str, Function] = {}
    for callback in manifest.callbacks:
        try:
            functions[callback.name] = _find_function(callback, source)
        except _NotFoundError as error:
            places = places_of(callback)
            called_at = f" (called at {places})" if places else ""
            problems[f"'{callback.name}'{called_at}: {error}"] = error
    classes: dict[str, type] = {}
    for name in dict.fromkeys(_namedtuples_in(manifest)):
        try:
            classes[name] = _find_namedtuple(name, source)
        except _NotFoundError as error:
            problems[f"namedtuple '{name}': {error}"] = error
    problems |= dict.fromkeys(_unused(given, manifest))
    if problems:
        raise ProgramError(_describe(problems, manifest.function))
    return functions, classes


def _unused(given: Iterable[str], manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong with what the user has given for names that the program lacks."""
    names = {callback.name for callback in manifest.callbacks}
    used = names | {*map(_unnumbered, names)} | {*_namedtuples_in(manifest)}
    quoted = ", ".join(f"'{name}'" for name in sorted(names)) or "nothing"
    for name in given:
        if name not in used:
            yield f"callbacks has '{name}', which the program does not call: it calls {quoted}"


def _describe(problems: Mapping[str, _NotFoundError | None], function: str) -> str:
    lines = dict.fromkeys(
        f"    {error.line}" for error in problems.values() if isinstance(error, _NotAllowedError)
    )
    text = (
        f"functions that {function} calls are not allowed or missing, or are others than when it "
        f"was exported:\n{listed(problems)}"
    )
    if not lines:
        return text
    return f"{text}\nIf you trust the program, write before it is loaded:\n\n" + "\n".join(lines)


def host_function(
    callback: ManifestCallback, function: Function, classes: Mapping[str, type]
) -> Function:
    """Wrap a callback's function so that it takes and returns flat arrays, under its own name."""
    if callback.keywords or callback.fixed:
        fixed = {name: ast.literal_eval(text) for name, text in callback.fixed.items()}
        function = KeywordCall(function, callback.keywords, fixed)
    count = len(callback.calls[0].operands)
    takes_flat = callback.arguments == {"tuple": [*range(count)]}
    returns_flat = _is_flat(callback.results)
    if takes_flat and returns_flat:
        return function

    @functools.wraps(function, updated=())
    def call(*arrays: Any, **borrowed: Any) -> object:
        arguments = structures.pack(callback.arguments, arrays, classes)
        if returns_flat:
            return function(*arguments, **borrowed)
        if not callback.out:
            return _flatten(callback, function(*arguments))
        out = borrowed["out"]
        given = structures.pack(
            callback.results, out if isinstance(out, tuple) else (out,), classes
        )
        returned = function(*arguments, out=given)
        return out if returned is given else returned

    return call


def register(
    callback: ManifestCallback, function: Function, called_at: str, name: str
) -> tuple[hostcall_runtime.Target, int]:
    """Register what `host_function` returned, under a unique name; return its target and id."""
    place = f", called at {called_at}" if called_at else ""
    description = f"callback {callback.name} of an exported program{place}"
    if callback.timeout is not None:
        function = hostcall_runtime.within(callback.timeout, function, description)
    target = hostcall_runtime.Target(function, callback.name, description)
    return target, hostcall_runtime.register(
        target,
        name,
        label=description,
        borrows=callback.borrow,
        takes_out=callback.out,
        concurrent=callback.concurrent,
    )


def places_of(callback: ManifestCallback) -> str:
    """Return the places of a callback's calls as text, or an empty text."""
    return ", ".join(dict.fromkeys(call.location for call in callback.calls if call.location))


def _flatten(callback: ManifestCallback, returned: Any) -> list[Any]:
    try:
        return structures.flatten(callback.results, returned, f"what {callback.name} returns")
    except structures.StructureError as error:
        raise ResultError(str(error)) from None


def _is_flat(results: structures.Structure) -> bool:
    """Return whether the runtime can take the results as the function returns them."""
    if not isinstance(results, dict):
        return True
    items = results.get("tuple", results.get("list"))
    return items is not None and items == [*range(len(items))]


def _find_function(callback: ManifestCallback, source: _Source) -> Function:
    name = callback.name if callback.name in source.given else _unnumbered(callback.name)
    is_given = name in source.given
    function: object = source.given[name] if is_given else _import_function(callback, source)
    function = getattr(function, _MARK, function)
    if not callable(function):
        raise _NotFoundError(f"{structures.type_name(function)} is there, which cannot be called")
    check = _check_arguments if is_given else _check_signature
    check(callback, function)
    return function


def _check_signature(callback: ManifestCallback, function: Function) -> None:
    """Refuse an imported function with a new signature, since its meaning may have changed, too."""
    found = signature_of(function)
    if callback.signature is not None and found is not None and found != callback.signature:
        raise _NotFoundError(
            f"its parameters are {found}, and were {callback.signature} when the program was "
            f"exported. Export the program again, or pass {_remedy(callback)} with a function that "
            "takes what that one took."
        )


def _check_arguments(callback: ManifestCallback, function: Function) -> None:
    """Check that the user's function accepts the arguments that the program passes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    assert isinstance(callback.arguments, dict)
    count = len(callback.arguments["tuple"]) - len(callback.keywords)
    keywords = [*callback.keywords, *callback.fixed]
    if callback.out and callback.calls[0].results:
        keywords.append("out")
    try:
        signature.bind(*[None] * count, **dict.fromkeys(keywords))
    except TypeError as error:
        also = "".join(f" and {name}=…" for name in keywords)
        raise _NotFoundError(
            f"the program calls it with {counted(count, 'argument')}{also}, and the function in "
            f"callbacks takes {signature_of(function)}: {error}"
        ) from error


def _import_function(callback: ManifestCallback, source: _Source) -> object:
    if callback.kind == "eager" and not source.tensors:
        raise _NotFoundError(
            "it takes and returns TensorFlow's tensors (tf.py_function), and there is no "
            "TensorFlow here. Export the program with tf.numpy_function or hostcall.callback in "
            f"its place, or pass {_remedy(callback)} with a function of NumPy arrays."
        )
    if callback.function is None:
        raise _NotFoundError(f"it can only be given: pass {_remedy(callback)}")
    if not source.imports:
        raise _NotFoundError(
            f"it is not given, and imports=False says not to import it: pass {_remedy(callback)}"
        )
    return _import(callback.function, f"pass {_remedy(callback)}", source.package)


def _import(name: str, remedy: str, package: str) -> object:
    """Import the object that `module:qualname` names, if the user permits it."""
    module_name, _, path = name.partition(":")
    if "<" in path:
        raise _NotFoundError(
            f"{path} is a function inside of another, or a lambda, which is in no module: {remedy}"
        )
    if (reason := _permissions.why_not(name)) is not None:
        raise _NotAllowedError(reason, _permissions.line_for(name, package))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = "it" if error.name == module_name else f"'{error.name}', which it imports,"
        raise _NotFoundError(
            f"module '{module_name}' cannot be imported, since {missing} is not installed here. "
            f"Install it, or put its directory into PYTHONPATH, or {remedy}"
        ) from error
    except (Exception, SystemExit) as error:
        raise _NotFoundError(
            f"importing module '{module_name}' fails: {type(error).__name__}: {error}"
        ) from error
    try:
        return _permissions.member(module, name)
    except _permissions.PlaceError as error:
        if error.can_be_allowed:
            line = _permissions.line_for(name, package, alone=True)
            raise _NotAllowedError(error.reason, line) from error
        raise _NotFoundError(
            f"{error.reason}. Was it renamed, or is another version of the module installed than "
            f"where the program was exported? Else {remedy}"
        ) from error


def _find_namedtuple(name: str, source: _Source) -> type:
    remedy = f"pass callbacks={{'{name}': …}} with the class"
    if name in source.given:
        found: object = source.given[name]
    elif not source.imports:
        raise _NotFoundError(f"imports=False says not to import it: {remedy}")
    else:
        found = _import(name, remedy, source.package)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise _NotFoundError(f"{found!r} is there, which is not a namedtuple")
    return found


def _namedtuples_in(manifest: Manifest) -> Iterable[str]:
    # Only values that `structures.pack` makes need their classes.
    yield from structures.namedtuples_of(manifest.results)
    for callback in manifest.callbacks:
        yield from structures.namedtuples_of(callback.arguments)
        if callback.out:
            yield from structures.namedtuples_of(callback.results)


def _remedy(callback: ManifestCallback) -> str:
    return f"callbacks={{'{_unnumbered(callback.name)}': …}}"


def _unnumbered(name: str) -> str:
    return _NUMBERED.sub("", name)

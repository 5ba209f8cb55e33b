"""Exported programs that are made without TensorFlow: of StableHLO, and of JAX functions."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxlib.mlir import ir

import hostcall_mlir
from hostcall_mlir import runner
from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.program import files, manifests
from hostcall_mlir.program.files import Program
from hostcall_mlir.program.manifests import Input, Manifest, ManifestCallback, Output, Spec

FUNCTIONS = "tests.support.exported.functions"
TOKEN = "!stablehlo.token"
F3 = np.array([1, -2, 3], np.float32)


def call(name: str, types: str, operands: str = "", effect: bool = False, **arrays: str) -> str:
    """The text of a host call of a function in `functions`."""
    config = [f'callback = "{name if ":" in name else f"{FUNCTIONS}:{name}"}"']
    config += [
        f"{kind} = array<i64{': ' * (kind in arrays)}{arrays.get(kind, '')}>"
        for kind in custom_calls.ARRAYS
    ]
    effects = "has_side_effect = true, " if effect or TOKEN in types else ""
    return (
        f"stablehlo.custom_call @hostcall({operands}) {{api_version = 4 : i32, {effects}"
        f"backend_config = {{{', '.join(config)}}}}} : {types}"
    )


def with_call(name: str, type_: str = "tensor<3xf32>") -> str:
    """The text of a program that makes one ordered call, and returns what that returns."""
    host_call = call(name, f"({type_}, {TOKEN}) -> ({type_}, {TOKEN})", "%x, %t")
    return f"""
func.func public @main(%x: {type_}) -> {type_} {{
  %t = stablehlo.create_token : {TOKEN}
  %0:2 = {host_call}
  return %0#0 : {type_}
}}
"""


# Of one pure call.
TRIPLE = f"""
func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
  %0 = {call("triple", "(tensor<3xf32>) -> tensor<3xf32>", "%x")}
  return %0 : tensor<3xf32>
}}
"""


def calling(*names: str, results: Any = None, **of_callbacks: Any) -> Program:
    """A program that calls these functions one after the other."""
    lines = [
        f"%{number} = {call(name, '(tensor<3xf32>) -> tensor<3xf32>', f'%{number - 1}')}"
        for number, name in enumerate(names, 1)
    ]
    body = "\n".join([*lines, f"return %{len(names)} : tensor<3xf32>"]).replace("%0", "%x")
    return make(
        f"func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {{\n{body}\n}}",
        results=results,
        of_callbacks=of_callbacks,
    )


def make(
    text: str,
    *,
    arguments: Any = None,
    results: Any = None,
    variables: Mapping[str, np.ndarray] | None = None,
    assigns: Sequence[str] = (),
    sizes: Sequence[tuple[int, int]] = (),
    of_callbacks: Mapping[str, Any] | None = None,
) -> Program:
    """An exported program, with a manifest of what the text says.

    `@main` takes the arguments and then the variables, and returns the results, the new values of
    `assigns` and true sizes, each of an (output, dimension) of `sizes`. `of_callbacks` are fields
    of all callbacks. Arguments and results are flat where no structure is given.
    """
    variables = variables or {}
    with private.new_context():
        module = ir.Module.parse(text)
        main = traversal.functions(module)["main"]
        type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        inputs, outputs = (
            [_spec_of(type_) for type_ in types] for types in (type_.inputs, type_.results)
        )
        first = len(inputs) - len(variables)
        count = len(outputs) - len(assigns) - len(sizes)
        bounds = [tuple(sorted(d for o, d in sizes if o == n)) for n in range(len(outputs))]
        specs = [Spec(s.dtype, s.shape, dims) for s, dims in zip(outputs, bounds, strict=True)]
        manifest = Manifest(
            {"hostcall": "0.1.0", "jaxlib": "0.10.2"},
            "predict",
            (
                *(Input("argument", f"x{i}", inputs[i]) for i in range(first)),
                *(Input("variable", n, s) for n, s in zip(variables, inputs[first:], strict=True)),
            ),
            {"tuple": [*range(first)]} if arguments is None else arguments,
            (
                *(Output("result", f"y{i}", specs[i]) for i in range(count)),
                *(Output("variable", n, s) for n, s in zip(assigns, specs[count:], strict=False)),
                *(Output("size", "", specs[-1], of=o, dim=d) for o, d in sizes),
            ),
            (0 if count == 1 else {"tuple": [*range(count)]}) if results is None else results,
            tuple(_callbacks(module, of_callbacks or {})),
        )
        artifact = private.serialize_artifact(module, "1.9.0")
    return Program(artifact, text, manifest, variables)


def artifact_of(text: str) -> bytes:
    """The bytes of a program that is given as text."""
    with private.new_context():
        return private.serialize_artifact(ir.Module.parse(text), "1.9.0")


def _spec_of(type_: ir.Type) -> Spec:
    spec = manifests.spec_of(type_)
    assert spec is not None  # of a token, which no main function takes or returns
    return spec


def _callbacks(module: ir.Module, fields: Mapping[str, Any]) -> list[ManifestCallback]:
    calls: dict[str, list[Any]] = {}
    for number, op in enumerate(custom_calls.host_calls(module)):
        name = str(custom_calls.callback_of(op))
        calls.setdefault(name, []).append(manifests.call_of(op, f"model.py:{10 + number}"))
    found = []
    for name, of_name in calls.items():
        operands, results = len(of_name[0].operands), len(of_name[0].results)
        given = {
            "function": name.partition("#")[0] if ":" in name else None,
            "kind": "numpy",
            "signature": None,
            "arguments": {"tuple": [*range(operands)]},
            "results": 0 if results == 1 else {"tuple": [*range(results)]},
            "calls": tuple(of_name),
        } | dict(fields)
        found.append(ManifestCallback(name=name, **given))
    return found


def from_jax(
    function: Callable[..., Any], *args: Any, called: Sequence[str], **more: Any
) -> Program:
    """A program of a JAX function that calls Python by JAX's own callbacks.

    `called` are the names in `functions` of what it calls, in the order of the program's text.
    """
    import jax

    text = jax.jit(function).lower(*args).as_text()
    names = ",".join(f"{i}={FUNCTIONS}:{name}" for i, name in enumerate(called))
    passes = f"hostcall-from-jax,hostcall-name{{names={names}}},hostcall-check,strip-debuginfo"
    return make(_without_tokens(hostcall_mlir.transform(text, passes)), **more)


def _without_tokens(text: str) -> str:
    """The program with a @main that makes the tokens which JAX gives it."""
    with private.new_context():
        module = ir.Module.parse(text)
        _drop_shardings(module)
        return without_tokens(module)


def without_tokens(module: ir.Module) -> str:
    """The text of a module with a @main around its own, which it changes."""
    main = traversal.functions(module)["main"]
    main.attributes["sym_name"] = ir.StringAttr.get("inner")
    return str(runner.cluster(traversal.functions(module), "inner"))


def _drop_shardings(module: ir.Module) -> None:
    for op in custom_calls.walk(module):
        if op.name == "sdy.mesh":
            op.erase()
            continue
        for name in [
            n for n in op.attributes if n.startswith("sdy.") or n in ("arg_attrs", "res_attrs")
        ]:
            del op.attributes[name]


def error_of(folder: Path) -> str:
    """The error of loading what is in a folder, which it names."""
    with pytest.raises(hostcall_mlir.ProgramError) as raised:
        hostcall_mlir.load(folder)
    assert str(raised.value).startswith(f"{folder}: ")
    return str(raised.value)


def change(folder: Path, edit: Callable[[Any], Any]) -> None:
    """Edits the manifest's JSON in place, or puts what `edit` returns there, and its digest."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_text())
    edited = edit(fields)
    fields = fields if edited is None else edited
    if isinstance(fields, dict):
        fields["sha256"] = manifests.digest_of(fields)
    path.write_text(json.dumps(fields))


def load(program: Program, folder: Path, **options: Any) -> Any:
    """The program as it is when it has been saved and loaded."""
    program.save(folder)
    # What was made here needs no child process to try whether it can be read.
    files.trust(program.artifact)
    return hostcall_mlir.load(folder, **options)

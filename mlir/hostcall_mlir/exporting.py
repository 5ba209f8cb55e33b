"""The parts of this package that `hostcall` uses: exports, imports into TensorFlow, passes for JAX.

The rest of the package is only for the package itself, its command and its tests.
"""

from __future__ import annotations

from hostcall_mlir.ir.custom_calls import host_calls, is_name
from hostcall_mlir.ir.diagnostics import PassError
from hostcall_mlir.ir.jaxlib_names import rewritten
from hostcall_mlir.passes.overlap import overlapping
from hostcall_mlir.passes.tokens import with_numbers
from hostcall_mlir.program.files import Program, read, trust
from hostcall_mlir.program.function_lookup import find, host_function, signature_of
from hostcall_mlir.program.manifests import (
    Callback,
    Input,
    Manifest,
    Output,
    Spec,
    call_of,
    dtype_of,
    mismatches,
    spec_of,
    title_of,
)
from hostcall_mlir.program.portable import (
    artifact_of,
    callbacks_in,
    convert,
    finish,
    inputs_of,
    outputs_of,
    parse,
    set_names,
    take_updates,
    text_of,
)
from hostcall_mlir.program.structures import (
    Structure,
    StructureError,
    flatten,
    pack,
    structure_of_numbers,
)

__all__ = [
    "Callback",
    "Input",
    "Manifest",
    "Output",
    "PassError",
    "Program",
    "Spec",
    "Structure",
    "StructureError",
    "artifact_of",
    "call_of",
    "callbacks_in",
    "convert",
    "dtype_of",
    "find",
    "finish",
    "flatten",
    "host_calls",
    "host_function",
    "inputs_of",
    "is_name",
    "mismatches",
    "outputs_of",
    "overlapping",
    "pack",
    "parse",
    "read",
    "rewritten",
    "set_names",
    "signature_of",
    "spec_of",
    "structure_of_numbers",
    "take_updates",
    "text_of",
    "title_of",
    "trust",
    "with_numbers",
]

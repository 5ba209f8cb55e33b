"""Prints, as C++, what a kernel of XLA's needs of TensorFlow's headers.

    python xla_op_kernel.py DIRECTORY

TensorFlow's own header includes XLA's client, which takes half a minute. This is the same text
without these includes, for kernels that get pointers to XLA's objects and make none. Where a
header is written in another way than in the tested versions, it is TensorFlow's own.
"""
# ruff: noqa: T201 - CMake reads what it prints

from __future__ import annotations

import re
import sys
from pathlib import Path

# All but these are kept: they include XLA's client, its compiler and its evaluator.
_HEAVY = re.compile(
    r'#include "(tensorflow/compiler/tf2xla/xla_(compiler|context|expression)'
    r'|xla/client/client|xla/hlo/builder/value_inference)\.h"\n'
)
# It has the evaluator in it. The context's other fields come before.
_EVALUATOR = "  xla::ValueInference value_inference_;\n"
_OWN = (
    "tensorflow/compiler/tf2xla/xla_compiler.h",
    "tensorflow/compiler/tf2xla/xla_op_kernel.h",
)


class UnknownHeaderError(Exception):
    """A header lacks what is looked for."""


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise UnknownHeaderError(pattern)
    return found[0]


def light(directory: Path) -> str:
    """Return the declarations of TensorFlow's headers in a directory."""
    bridge = directory / "tensorflow" / "compiler" / "tf2xla"
    modes = (directory / "xla/hlo/builder/value_inference.h").read_text(encoding="utf-8")
    compiler = (bridge / "xla_compiler.h").read_text(encoding="utf-8")
    context = (bridge / "xla_op_kernel.h").read_text(encoding="utf-8")
    expression = (bridge / "xla_expression.h").read_text(encoding="utf-8")
    if _EVALUATOR not in context:
        raise UnknownHeaderError(_EVALUATOR)
    return "\n".join(
        (
            '#include "xla/hlo/builder/xla_builder.h"',
            "namespace xla {",
            "class Client;",
            "class ValueInference;",
            _found(r"^enum ValueInferenceMode \{.*?^\};", modes),
            "}  // namespace xla",
            "namespace tensorflow {",
            "class XlaContext;",
            "}  // namespace tensorflow",
            _HEAVY.sub("", expression),
            "namespace tensorflow {",
            "class XlaCompiler {",
            " public:",
            _found(r"^  absl::Status SetNodeToken\([^;]*;", compiler),
            _found(r"^  absl::StatusOr<xla::XlaOp> GetNodeToken\([^;]*;", compiler),
            "};",
            "}  // namespace tensorflow",
            _HEAVY.sub("", context.replace(_EVALUATOR, "")),
        )
    )


def _main(directory: Path) -> None:
    try:
        print(light(directory))
    except (OSError, UnknownHeaderError):
        print(*(f'#include "{name}"' for name in _OWN), sep="\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))

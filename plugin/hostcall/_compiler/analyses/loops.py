"""What loops leave as it is."""

from __future__ import annotations

from hostcall._tf.types import FunctionDef


def invariants(body: FunctionDef) -> set[int]:
    """Return the numbers of the arguments that a body returns unchanged, in their places."""
    identities = {f"{n.name}:output:0": n.input[0] for n in body.node_def if n.op == "Identity"}
    found = set()
    for number, result in enumerate(body.signature.output_arg):
        value = body.ret[result.name]
        while value in identities:
            value = identities[value]
        if value == body.signature.input_arg[number].name:
            found.add(number)
    return found

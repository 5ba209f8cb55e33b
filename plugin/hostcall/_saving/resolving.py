"""From a qualified token to its spec, when it is first asked for."""

from __future__ import annotations

from typing import Any, NoReturn

from hostcall._saving import rebuilding, tokens
from hostcall._saving.errors import SavedFunctionError
from hostcall._tf import token_registry
from hostcall_runtime import _locks

# Those of tokens that were looked up: graphs that are loaded any time may have the same ones.
_specs: dict[str, Any] = {}
_lock = _locks.new_lock()


def resolve(token: str) -> Any:
    """The spec that a token of another process stands for; None for a token of this one.

    Raises:
      SavedFunctionError: when there is none, with the reason and what to write.
    """
    if token_registry.is_of_other_process(token):
        _refuse(token)
    if not token_registry.is_qualified(token):
        return None
    # Without the lock: an import may wait for another one, in which somebody waits for the lock.
    spec = _rebuilt(token)
    with _lock:
        kept = _specs.setdefault(token, spec)
        token_registry.register_token(token, kept)
        if not token_registry.is_own(token):
            token_registry.register_token(kept.title, kept)
    return kept


def keep(token: str, spec: Any) -> None:
    """Lets a qualified token stand for a spec of this process, as long as that runs."""
    with _lock:
        _specs[token] = spec
        token_registry.register_token(token, spec)


def _rebuilt(token: str) -> Any:
    record = tokens.decode(token)
    try:
        if record.of is None:
            spec: Any = rebuilding.spec_of_call(record)
        else:
            parent = _specs.get(tokens.encode(record.of)) or resolve(tokens.encode(record.of))
            spec = rebuilding.spec_of_gradient(record, parent)
    except SavedFunctionError:
        raise
    except (TypeError, ValueError, SyntaxError, RecursionError, OverflowError) as error:
        raise SavedFunctionError(
            f"hostcall: the graph was damaged or altered: what it says of the Python function "
            f"{record.users.label} makes no sense: {error}"
        ) from error
    spec.saved = record
    spec.title = token_registry.title_of(token)
    return spec


def _refuse(token: str) -> NoReturn:
    raise SavedFunctionError(
        f"hostcall: Could not find callback with key={token} in the registry. The graph comes from "
        "another process, which had no name for this Python function: it is a lambda, a function "
        "in a function, a method of an object, or from the script that ran there. Define it at the "
        "top level of a module that this process can import, too. Or give it a name there, and a "
        'function for the name here:\n\n    hostcall.register(function, "mymodel::function")\n'
        '    hostcall.provide("mymodel::function", function)'
    )

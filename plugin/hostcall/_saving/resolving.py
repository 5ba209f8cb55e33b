"""From a qualified token to its spec, when it is first asked for."""

from __future__ import annotations

from typing import Any

from hostcall._saving import rebuilding, tokens
from hostcall._saving.errors import SavedFunctionError
from hostcall._tf import token_registry
from hostcall_runtime import _locks

# Those of tokens that were looked up: graphs that are loaded any time may have the same ones.
_specs: dict[str, Any] = {}
_lock = _locks.new_lock()


def resolve(token: str) -> Any:
    """The spec that a qualified token stands for.

    Raises:
      SavedFunctionError: when there is none, with the reason and what to write.
    """
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
        token_registry.register_saved(token, spec.title, spec)


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

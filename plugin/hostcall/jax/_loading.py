"""What `import hostcall.jax` does beyond defining its functions."""

from __future__ import annotations

import jax

from hostcall._functions import frameworks
from hostcall.jax import (
    _callback,
    _disk_cache,
    _effects,
    _handlers,
    _patches,
    _rules,
    _settings,
    _values,
)
from hostcall_runtime import _at_exit, _patching, _stable_ids


def load() -> None:
    """Tells JAX of calls, and `hostcall.callback` of JAX."""
    _patches.check()
    _effects.register()
    _rules.register()
    # A program that still runs may hand over calls.
    _at_exit.programs_end.append(jax.effects_barrier)
    _stable_ids.caches.append(_disk_cache.is_on)
    _patches.hide_frames()
    _settings.carry()
    _patching.add(_patches.TABLE)
    frameworks.enter_jax(_Jax())


class _Jax:
    """See `frameworks.Jax`."""

    call = staticmethod(_callback.call)
    is_tracing = staticmethod(_values.is_tracing)
    check_handler = staticmethod(_handlers.check)
    run_handler = staticmethod(_handlers.run)

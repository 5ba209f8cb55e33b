"""What `import hostcall.jax` does beyond defining its functions."""

from __future__ import annotations

import jax

from hostcall._callbacks import frameworks
from hostcall.jax import _callback, _effects, _patches, _rules, _values
from hostcall_runtime import _at_exit, _patching


def load() -> None:
    """Tells JAX of calls, and `hostcall.callback` of JAX."""
    _effects.register()
    _rules.register()
    # A program that still runs may hand over calls.
    _at_exit.programs_end.append(jax.effects_barrier)
    _patches.hide_frames()
    _patching.add(_patches.TABLE)
    framework = frameworks.Framework(_values.is_tracing, _callback.call)
    frameworks.register("hostcall.jax", framework)

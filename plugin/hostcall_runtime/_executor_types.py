"""What executors and their futures are to us: they come from several libraries."""

from __future__ import annotations

from typing import Any, TypeAlias

# An object with the interface of `concurrent.futures.Executor`, of which `submit` is needed.
Executor: TypeAlias = Any
# What its `submit` returns: an object with the interface of `concurrent.futures.Future`.
Future: TypeAlias = Any

"""What hostcall replaces in TensorFlow so that saved graphs find their Python functions again.

One function a patch, as in `patches`.
"""

from __future__ import annotations

import contextvars
import functools
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall._tf import features, names, token_registry
from hostcall._tf.replacements import Replacement, attribute
from hostcall._tf.types import MetaGraphDef
from hostcall_runtime._patching import Patch

_NAMES_FUNCTIONS = "A SavedModel names its Python functions so that other processes find them."


def making_functions(hook: Callable[[Any], None]) -> Patch:
    """Calls `hook` with the graph of every function that is made, before it is."""

    def wrap(make: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(make)
        def tell_and_make(name: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
            if patch.installed:
                hook(graph)
            return make(name, graph, *args, **kwargs)

        return tell_and_make

    owner, name = names.atomic_function, "from_func_graph"
    why = "A function may run in another process of the job, which has to find what it calls."
    return attribute(owner, name, wrap, features.OTHER_PROCESSES, why)


def extending_sessions(hook: Callable[[Any], None]) -> Patch:
    """Calls `hook` with the graph of a session before its new ops are sent where they run."""

    def wrap(extend: Callable[[Any], None], patch: Replacement) -> Any:
        @functools.wraps(extend)
        def tell_and_extend(self: Any) -> None:
            if patch.installed:
                hook(self.graph)
            extend(self)

        return tell_and_extend

    why = "Ops of a session may run on other tasks, which have to find what they call."
    return attribute(names.ExtendedSession, "_extend_graph", wrap, features.OTHER_PROCESSES, why)


# Of the SavedModel that this thread writes.
_directory: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "hostcall_saved_model", default=None
)


def directories() -> Patch:
    """Notes the directory of the SavedModel that is written, for the next one."""

    def wrap(save: Callable[..., Any], _: Replacement) -> Any:
        @functools.wraps(save)
        def note_and_save(obj: Any, export_dir: Any, *args: Any, **kwargs: Any) -> Any:
            before = _directory.set(os.fspath(export_dir))
            try:
                return save(obj, export_dir, *args, **kwargs)
            finally:
                _directory.reset(before)

        return note_and_save

    name, why = "save_and_return_nodes", "Functions that a SavedModel carries lie in its directory."
    return attribute(names.save, name, wrap, features.SAVED_MODELS, why)


def saving(hook: Callable[[Any, str | None], None]) -> Patch:
    """Calls `hook` with the MetaGraphDef of every SavedModel that is written, before it is.

    And with its directory, or None where nothing but the MetaGraphDef is written.
    """

    def wrap(build: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(build)
        def build_and_tell(*args: Any, **kwargs: Any) -> Any:
            built = build(*args, **kwargs)
            if patch.installed:
                hook(built[0], _directory.get())
            return built

        return build_and_tell

    name = "_build_meta_graph_impl"
    return attribute(names.save, name, wrap, features.SAVED_MODELS, _NAMES_FUNCTIONS)


def saving_of_version_1(hook: Callable[[Any, str | None], None]) -> Patch:
    """The same for those that `tf.compat.v1.saved_model` writes."""

    def wrap(add: Callable[..., None], patch: Replacement) -> Any:
        @functools.wraps(add)
        def tell_and_add(self: Any, meta_graph: MetaGraphDef, *args: Any, **kwargs: Any) -> None:
            if patch.installed:
                hook(meta_graph, os.fspath(self._export_dir))
            add(self, meta_graph, *args, **kwargs)

        return tell_and_add

    owner, name = names.SavedModelBuilder, "_tag_and_add_meta_graph"
    return attribute(owner, name, wrap, features.SAVED_MODELS, _NAMES_FUNCTIONS)


def writing_graphs(named: Callable[[Any], Any]) -> list[Patch]:
    """Has graphs that are written into files be `named` before, those of `Saver` among them."""

    def wrap(write: Callable[..., str], patch: Replacement) -> Any:
        @functools.wraps(write)
        def name_and_write(graph_or_graph_def: Any, *args: Any, **kwargs: Any) -> str:
            graph = graph_or_graph_def
            if patch.installed:
                graph = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
                graph = named(graph)
            return write(graph, *args, **kwargs)

        return name_and_write

    why = "The Python functions of a graph in a file are to be found by other processes."
    v1 = tf.compat.v1
    owners = (names.graph_io, tf.io, v1.io, v1.train)
    return [attribute(o, "write_graph", wrap, features.SAVED_MODELS, why) for o in owners]


def loading(hook: Callable[[Any, str], None]) -> Patch:
    """Calls `hook` with the SavedModel message that is read in order to load it, and its path."""

    def wrap(parse: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(parse)
        def parse_and_tell(export_dir: Any, *args: Any, **kwargs: Any) -> Any:
            model = parse(export_dir, *args, **kwargs)
            if patch.installed:
                hook(model, os.fspath(export_dir))
            return model

        return parse_and_tell

    why = "Whoever loads a SavedModel is told at once which Python functions cannot be called."
    return attribute(names.loader, "parse_saved_model", wrap, features.SAVED_MODELS, why)


def resolving(resolve: Callable[[str], Any]) -> Patch:
    """Lets `resolve` find what tokens of other processes stand for, when first asked for."""

    def wrap(get: Callable[..., Any], patch: Replacement) -> Any:
        functions = token_registry.functions

        @functools.wraps(get)
        def get_or_resolve(token: str, default: Any = None) -> Any:
            found = get(functions, token)
            if found is None and patch.installed:
                found = resolve(token)
            return default if found is None else found

        return get_or_resolve

    why = "TensorFlow's kernels look a function up here, and it may have to be found by its name."
    return attribute(token_registry.functions, "get", wrap, features.SCRIPT_OPS, why)

"""What of hostcall needs private names of TensorFlow, and what happens where one is missing."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import Any, NoReturn

import tensorflow as tf

from hostcall_runtime._patching import Name


class MissingNameError(ImportError):
    """The installed TensorFlow lacks a private name, without which something cannot be done."""


@dataclasses.dataclass(eq=False)
class Feature:
    """A part of hostcall that private names of TensorFlow make possible.

    Attributes:
      title: what it does, as `hostcall doctor` lists it.
      without: what happens where it is switched off.
      essential: whether hostcall cannot be enabled without it.
      missing: the names that the installed TensorFlow lacks; found out when `names` is imported.
    """

    title: str
    without: str
    essential: bool = False
    missing: list[Name] = dataclasses.field(default_factory=list)

    @property
    def available(self) -> bool:
        """Whether TensorFlow has all names that it needs."""
        return not self.missing

    def require(self) -> None:
        """Refuses what cannot be done without it.

        Raises:
          MissingNameError: when it is not available.
        """
        if self.missing:
            raise MissingNameError(message(self.missing[0]), name="hostcall")


class StoredName(Name):
    """A name that objects of a class get when they are made: one that a method of it writes.

    `attribute` ends with that method and the name: "Graph.__init__._functions".
    """

    def find(self) -> object:
        """The name itself; as for `Name` where the method does not write it."""
        owner, _, name = self.attribute.rpartition(".")
        method = Name(self.module, owner, self.feature, self.without).find()
        code = inspect.unwrap(method).__code__  # type: ignore[arg-type]
        if name not in (*code.co_names, *code.co_varnames):
            raise AttributeError(name)
        return name


class Missing:
    """Stands for what TensorFlow lacks: to use it is an error, which names it."""

    def __init__(self, name: Name) -> None:
        self.name = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise MissingNameError(message(self.name))

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise MissingNameError(message(self.name))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()  # a class of ours can be defined where TensorFlow's is missing

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__


def message(name: Name) -> str:
    """What is missing, for what, what that means, and what to do."""
    return (
        f"hostcall: TensorFlow {tf.__version__} has no {name}, which hostcall needs for this: "
        f"{name.feature}. Without it, {name.without} Install a version of TensorFlow that this "
        "hostcall was made for, or a hostcall made for yours; `hostcall doctor` lists all names."
    )


def warn_of_missing(features: list[Feature]) -> None:
    """Warns of each feature that is switched off; the rest of hostcall works.

    Raises:
      MissingNameError: when an essential one is.
    """
    for feature in features:
        for name in feature.missing:
            if feature.essential:
                raise MissingNameError(message(name), name="hostcall")
            warnings.warn(message(name), RuntimeWarning, stacklevel=4)


SCRIPT_OPS = Feature(
    "script ops in compiled functions",
    "hostcall stays disabled and TensorFlow behaves as if it was not imported.",
    essential=True,
)
TRACING = Feature(
    "shapes that set_shape gives reach the compiler, and compiled functions keep their order",
    "tf.ensure_shape gives shapes and set_shape does not, and calls of compiled functions with "
    "side effects need tf.control_dependencies to run in the order of the program.",
)
GRADIENTS = Feature(
    "gradients of py_functions in compiled functions",
    "a gradient through a py_function raises an error.",
)
NESTED_GRADIENTS = Feature(
    "nested gradients of py_functions",
    "py_functions have first derivatives and no higher ones.",
)
RESIDUALS = Feature(
    "what a py_function keeps for its gradient ends with the tensors of the call",
    "it is kept until the gradient is computed once, and for the latest calls only.",
)
EXCEPTIONS = Feature(
    "exceptions are handed over to TensorFlow's errors",
    "hostcall.last_error finds the exceptions of the latest 16 failures and no older ones.",
)
INTERRUPTS = Feature(
    "Ctrl-C in a callback raises KeyboardInterrupt",
    "it raises an error of TensorFlow's whose text says KeyboardInterrupt.",
)
SAVED_MODELS = Feature(
    "SavedModels keep their functions",
    "the functions of a SavedModel that is written and read back in one process must be kept by "
    "you.",
)
COPIED_GRAPHS = Feature(
    "copied graphs keep their functions",
    "the functions of a graph that is imported, pruned or frozen must be kept by you.",
)
REMOVED_FUNCTIONS = Feature(
    "functions that hostcall derives are freed with those that they were made of",
    "they stay in memory until the process ends.",
)
CUSTOM_GRADIENTS = Feature(
    "custom gradients are freed with their graphs",
    "they stay in memory until the process ends.",
)
TRACEBACKS = Feature(
    "tracebacks show the user's lines and none of hostcall's",
    "tracebacks show some lines of hostcall, too.",
)
LOCATIONS = Feature(
    "locations in code that autograph has converted",
    "messages may name lines of the copy that autograph made of your file.",
)
QUICK_CALLS = Feature(
    "callbacks that autograph's code defines are called without its wrapper",
    "calls of functions that are defined in a tf.function take longer.",
)
SPECS_IN_TOUT = Feature(
    "shapes in the Tout of a py_function reach the compiler",
    "tf.ensure_shape gives the shapes of py_functions and Tout does not.",
)
PROGRAMS = Feature(
    "programs of StableHLO in functions (hostcall.load, hostcall.jax.to_tf)",
    "hostcall.load and hostcall.jax.to_tf raise an error when what they return is called.",
)
BOUND_CALLS = Feature(
    "the short way of bound functions (hostcall.bind)",
    "bound functions work, and their calls take as long as those of a ConcreteFunction.",
)
REWRITING = Feature(
    "functions made anew (hostcall.partition_pass)",
    "hostcall.partition_pass raises an error.",
)
EXPORTING = Feature(
    "exported programs (hostcall.export)",
    "hostcall.export raises an error.",
)
SAVED_MODEL_FILES = Feature(
    "SavedModels on the command line",
    "`hostcall explain` and `hostcall rewrite` raise an error; hostcall.explain works.",
)
ALL = [value for value in list(globals().values()) if isinstance(value, Feature)]

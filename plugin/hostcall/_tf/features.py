"""What of hostcall needs private names of TensorFlow, and what happens where one is missing."""

from __future__ import annotations

import dataclasses
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
            raise MissingNameError(message(self), name="hostcall")


class Missing:
    """Stands for what TensorFlow lacks: to use it is an error, which names it."""

    def __init__(self, name: Name, feature: Feature) -> None:
        self.name = name
        self._feature = feature

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise MissingNameError(message(self._feature), name="hostcall")

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise MissingNameError(message(self._feature), name="hostcall")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()  # a class of ours can be defined where TensorFlow's is missing


def message(feature: Feature) -> str:
    """Which names are missing, for what, what that means, and what to do."""
    missing = ", ".join(map(str, feature.missing))
    return (
        f"hostcall: TensorFlow {tf.__version__} lacks what hostcall needs for {feature.title}: "
        f"{missing}. Without it, {feature.without} Install a version of TensorFlow that this "
        "hostcall was made for, or a hostcall that was made for yours. `hostcall doctor` lists "
        "all names that hostcall needs."
    )


def warn_of_missing(features: list[Feature]) -> None:
    """Warns of each feature that is switched off; the rest of hostcall works.

    Raises:
      MissingNameError: when an essential one is.
    """
    for feature in features:
        if feature.essential:
            feature.require()
        elif not feature.available:
            warnings.warn(message(feature), RuntimeWarning, stacklevel=2)


SCRIPT_OPS = Feature(
    "script ops in compiled functions",
    "hostcall stays disabled and TensorFlow behaves as if it was not imported.",
    essential=True,
)
TRACING = Feature(
    "shapes that set_shape gives, and the order of compiled functions",
    "tf.ensure_shape tells the compiler shapes and set_shape does not, and calls of compiled "
    "functions with side effects need tf.control_dependencies to run in the order of the program.",
)
GRADIENTS = Feature(
    "gradients of py_functions in compiled functions",
    "a gradient through a py_function raises an error.",
)
NESTED_GRADIENTS = Feature(
    "nested gradients of py_functions",
    "py_functions have first derivatives and no higher ones.",
)
QUICK_GRADIENTS = Feature(
    "the short way of the gradients of py_functions",
    "they are right, and take longer where the function is small.",
)
RESIDUALS = Feature(
    "the end of what py_functions keep for gradients",
    "it is kept until the gradient is computed once, and for the latest calls only.",
)
EXCEPTIONS = Feature(
    "exceptions that live as long as TensorFlow's errors (hostcall.last_error)",
    "hostcall.last_error finds the exceptions of the latest 16 failures and no older ones.",
)
INTERRUPTS = Feature(
    "Ctrl-C in callbacks",
    "it raises an error of TensorFlow's instead of KeyboardInterrupt.",
)
SAVED_MODELS = Feature(
    "SavedModels whose Python functions other processes find",
    "a SavedModel names its Python functions by numbers of the process that wrote it. It works in "
    "this process alone, as long as you keep the functions.",
)
OTHER_PROCESSES = Feature(
    "functions whose Python functions other processes of the job find",
    "compiled functions with script ops run in the process that has traced them, and not on "
    "workers.",
)
COPIED_GRAPHS = Feature(
    "copied graphs that keep their functions",
    "the functions of a graph that is imported, pruned or frozen must be kept by you.",
)
FIRST_CALLS = Feature(
    "variables that compiled functions create with initial values of their arguments",
    "such functions are errors of TensorFlow's, as without hostcall.",
)
REMOVED_FUNCTIONS = Feature(
    "the end of functions that hostcall has made of others",
    "they stay in memory until the process ends.",
)
CUSTOM_GRADIENTS = Feature(
    "the end of custom gradients",
    "they stay in memory until the process ends.",
)
VECTORIZING = Feature(
    "script ops in tf.vectorized_map and in jacobians",
    "TensorFlow calls them in loops of its own, once more than there are elements.",
)
TRACEBACKS = Feature(
    "tracebacks without lines of hostcall's",
    "tracebacks show some lines of hostcall, too.",
)
LOCATIONS = Feature(
    "locations in code that autograph has converted",
    "messages may name lines of the copy that autograph made of your file.",
)
QUICK_CALLS = Feature(
    "quick calls of functions that autograph has converted",
    "calls of Python functions that are defined in a tf.function take longer.",
)
SPECS_IN_TOUT = Feature(
    "shapes in the Tout of a py_function",
    "tf.ensure_shape tells the compiler shapes of a py_function and Tout does not.",
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

"""Calls from JAX: `hostcall.jax.call`, and `hostcall.callback` objects with their gradients."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from hostcall._functions import frameworks, source_location, specs
from hostcall._functions.options import (
    MAP,
    SEQUENTIAL,
    Options,
    SharedOptions,
    check_no_results,
    check_side_effects,
    options_of,
    takes,
)
from hostcall._functions.specs import BoundedSpec
from hostcall._functions.user_function import (
    UserFunction,
    gradients_by,
    gradients_listed,
    wrong_gradient,
)
from hostcall.jax import _eager, _primitive, _sharding, _values
from hostcall.jax._functions import Fixed, JaxFunction, hashable
from hostcall.jax._primitive import Joint
from hostcall_runtime import _fire_and_forget

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def flatten_results(declared: object, place: str) -> tuple[list[jax.ShapeDtypeStruct], Any]:
    """Return the checked leaves of a declared result, a pytree, and its structure."""
    leaves, tree = jax.tree.flatten(declared)
    return [_as_struct(leaf, place) for leaf in leaves], tree


def _as_struct(leaf: Any, place: str) -> jax.ShapeDtypeStruct:
    if specs.is_dtype(leaf):
        name = f"jnp.{np.dtype(getattr(leaf, 'as_numpy_dtype', leaf))}"
        raise TypeError(
            f"{place}: a result {specs.lacking(leaf)}. Write jax.ShapeDtypeStruct((), {name}) for "
            f"one number, jax.ShapeDtypeStruct((3,), {name}) for three."
        )
    if isinstance(leaf, type) or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise TypeError(
            f"a result is declared as {leaf!r}, and not as a jax.ShapeDtypeStruct(shape, "
            f"dtype): {place}."
        )
    if isinstance(leaf, BoundedSpec):
        raise ValueError(
            f"{place}: a result is declared as the BoundedSpec {leaf}, and JAX has no arrays whose "
            "size only the call tells. Return an array of the largest size, and the true size as "
            "one more result."
        )
    dtype = getattr(leaf.dtype, "as_numpy_dtype", leaf.dtype)
    if _values.is_key(dtype):
        return jax.ShapeDtypeStruct(_sizes(leaf.shape, place), dtype)
    check_numbers(dtype, place)
    _values.check_dtype(dtype, place)
    return jax.ShapeDtypeStruct(_sizes(leaf.shape, place), dtype)


def check_numbers(dtype: Any, place: str) -> None:
    """Raise a TypeError for a dtype that is not numeric, such as strings."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"{place}: a result is declared as {dtype}, which NumPy does not have.")
    if np.dtype(dtype).kind in "OSUTmM":
        raise TypeError(
            f"{place}: a result is of dtype {np.dtype(dtype)}, and JAX has arrays of numbers alone."
        )


def _sizes(shape: object, place: str) -> tuple[Any, ...]:
    """Return the sizes of a shape, which may be symbolic."""
    sizes = specs.sizes_of(shape)
    if sizes is None or any(size is None for size in sizes):
        known = "<unknown>" if sizes is None else sizes
        raise ValueError(
            f"{place}: a result is declared with the shape {known}, and JAX needs every size. "
            "Declare it as a function of the arguments: result=lambda x: tf.TensorSpec(x.shape, "
            "x.dtype) or, for hostcall.jax.call, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)."
        )
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ValueError(
            f"{place}: a result is declared with the shape {sizes}, which has a negative size."
        )
    return sizes


VMAP_METHODS = (
    *("sequential", "sequential_unrolled", "expand_dims", "broadcast_all"),
    "legacy_vectorized",
)


@specs.wanting_result
@takes("call", SharedOptions)
def call(
    fn: Callable[..., Any],
    result: Any,
    *args: Any,
    name: str | None = None,
    ordered: bool = False,
    vmap_method: str | None = None,
    sharding: Any = None,
    **options: Unpack[SharedOptions],
) -> Any:
    """Call a Python function; under `jax.jit` and other compilation, whenever the program runs.

    It serves the purposes of `jax.pure_callback` and `jax.experimental.io_callback`, and costs much
    less. In a compiled program hostcall checks the number, dtypes and shapes of the results.

    Args:
      fn: the function. It gets NumPy arrays (NumPy scalars for rank 0) in the structure of `args`,
        which it owns and may write to. It returns arrays of the declared dtypes in the structure of
        `result`; containers may differ as in `jax.pure_callback`, and the keys of dictionaries may
        not. While `jax_enable_x64` is off, numbers of 64 bits, such as Python's, become numbers of
        32. For random keys it gets the result of `jax.random.key_data`, and may return that or
        keys.
      result: the results: a pytree of `jax.ShapeDtypeStruct`, or of other objects with `shape` and
        `dtype`, such as an array or a `tf.TensorSpec`; or a function from the arguments'
        ShapeDtypeStructs to such a pytree. None for no result.
      *args: pytrees of arrays. With `wait=False` some of their leaves may be other values, which
        the function gets as they are.
      name: the name in messages, profiles and `hostcall.stats`; by default the function's own.
      ordered: whether the call runs after all earlier ordered calls of hostcall.
        `jax.effects_barrier()` waits for it.
      vmap_method: how `jax.vmap` maps the call, as in `jax.pure_callback`; or "map", as in
        `hostcall.declare`. Where nothing is said, calls are "sequential" unless they are pure.
      sharding: the arrays of a call in a program for several devices. With `jax.P()` or a
        `jax.sharding.SingleDeviceSharding`, the devices make one call with whole arrays, as where
        nothing is said. With a `jax.NamedSharding`, or with `jax.P("axis")` under `jax.set_mesh`,
        they make one call for each shard. That call takes and returns arrays of the shard's shapes;
        `result` has those of the whole arrays. A pair is for the arguments and for the results.
        Each of the two can be a structure like that of `args` or of `result`. Calls are made in the
        order of the shards, `concurrent` ones at the same time. If one fails, the program fails on
        all devices. In programs for several processes, the process of the first device with the
        shard, or of the SingleDeviceSharding, makes the call.
      **options: `pure`, `executor`, `wait`, `queue`, `when_full`, `retries`, `memory` and
        `concurrent`; `help(hostcall.jax.call)` describes each.

    Returns:
      A pytree of JAX arrays, as `result` declares.

    Raises:
      TypeError: when `fn` is not callable, an argument is not an array (without `wait=False`), or a
        result has no shape or a dtype that JAX lacks. Also when `executor` is neither an executor
        nor a function, `wait` or `concurrent` is not a bool, or `sharding` has another form.
      ValueError: for `ordered` with `pure` or `concurrent`, an unknown `vmap_method`, `retries`
        without `pure`, or a dtype of 64 bits while `jax_enable_x64` is off. Also when a call with
        results is differentiated; for `wait=False` with results or `pure`, and for values of
        `queue`, `when_full` and `memory` that `hostcall.declare` refuses. Also where arrays cannot
        be divided as `sharding` says, or it is given inside of `jax.shard_map`.
      NotImplementedError: when a pure call without `vmap_method` is mapped by `jax.vmap`. Also
        when a call is compiled for several GPUs with `sharding`, or with a side effect, without
        `wait=False`, where XLA divides arrays among them.
      NotExportableError: when `jax.export` or `jax2tf` takes a program with the call.
      jax.errors.JaxRuntimeError: when the function raises, or its results are not as declared;
        `hostcall.last_error(e)` is the exception that it raised.

    Examples:
      >>> @jax.jit
      ... def program(x):
      ...     return 2 * hostcall.jax.call(np.sort, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
      >>> program(jnp.array([3.0, 1.0, 2.0]))
      Array([2., 4., 6.], dtype=float32)
    """
    if not callable(fn):
        raise TypeError(f"hostcall.jax.call wants a function, and not {fn!r}.")
    given = tuple(options.items())
    asked = _Asked(fn, name, ordered, vmap_method, given, source_location.caller())
    leaves, tree = jax.tree.flatten(args)
    if sharding is None and (program := _program_alone(asked, result, leaves, tree)) is not None:
        return program.run(leaves)
    place, (declared, effect) = asked.place, asked.checked()
    arrays, *structure = _sorted(leaves, tree, place, declared.call_log is not None)
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    function, results = _prepared(asked, declared, result, structs, *structure)

    def bind(arrays: Any, results: Any, joint: Joint | None = None) -> list[Any]:
        return _primitive.bind(function, arrays, results, effect, vmap_method, joint)

    if sharding is None:
        return jax.tree.unflatten(function.out_tree, bind(arrays, results))
    whole = (function.in_tree.unflatten(structs), function.out_tree.unflatten(results))
    division = _sharding.division_of(sharding, *whole, place)
    return function.out_tree.unflatten(_sharding.bind(division, bind, arrays, results))


class _Asked(NamedTuple):
    """What a user asks of a call, beside its arguments, results and sharding."""

    fn: Callable[..., Any]
    name: str | None
    ordered: bool
    vmap_method: str | None
    options: tuple[tuple[str, Any], ...]
    caller: str  # `file:line` of the call

    @property
    def title(self) -> str:
        """The name of the function in messages and profiles."""
        return str(self.name or getattr(self.fn, "__name__", "") or type(self.fn).__name__)

    @property
    def place(self) -> str:
        """The function and the call, with their lines, for messages."""
        called_as = f"{self.name}, " if self.name is not None else ""
        called_as += source_location.of_function(self.fn)
        return f"hostcall.jax.call of {called_as}, called at {self.caller}"

    def checked(self) -> tuple[Options, Any | None]:
        """Return the declared options and the effect; raise a ValueError if they disagree."""
        divided = MAP if self.vmap_method == MAP else None
        declared = options_of("call", SharedOptions, dict(self.options), vmap_method=divided)
        effect = effect_of(self.ordered, declared.pure, self.title)
        who = f"hostcall.jax.call of {self.title}"
        check_side_effects(declared, who, "pure=True", ordered=self.ordered, pure=declared.pure)
        if divided is None:
            check_vmap_method(self.vmap_method, self.title)
        return declared, effect


def _prepared(
    asked: _Asked,
    declared: Options,
    result: Any,
    structs: list[jax.ShapeDtypeStruct],
    in_tree: Any,
    fixed: tuple[Fixed, ...] = (),
    given_tree: Any = None,
) -> tuple[JaxFunction, list[jax.ShapeDtypeStruct]]:
    """Return the function of a call, and its results, flat."""
    fn, place = asked.fn, asked.place
    no_arguments = in_tree.num_nodes == 1
    if no_arguments and _takes_arguments(fn) and any(map(_is_array, jax.tree.leaves(result))):
        raise specs.result_left_out("call")
    if specs.is_shape_function(result):
        result = specs.ask(result, jax.tree.unflatten(in_tree, structs), fn)
    results, out_tree = flatten_results(result, place)
    fn = hashable(fn)
    # All calls of a function share a call log.
    log = _fire_and_forget.log_of(fn, declared.call_log)
    check_no_results(log, [spec.dtype for spec in results], not declared.pure, place)
    function = JaxFunction(
        fn,
        declared.with_fields(call_log=log),
        place,
        stateful=not declared.pure,
        given_name=asked.name,
        in_tree=in_tree,
        out_tree=out_tree,
        title=asked.title,
        result_dtypes=_values.dtypes_of(results),
        fixed=fixed,
        given_tree=given_tree,
    )
    return function, results


# The options for whose values, True or False, calls outside of programs keep what they prepare.
_KEPT = frozenset({"pure", "concurrent"})


def _program_alone(
    asked: _Asked, result: Any, leaves: list[Any], in_tree: Any
) -> _eager.EagerProgram | None:
    """Return the program of a call outside of programs; None for one that is not kept."""
    if specs.is_shape_function(result) or not _KEPT.issuperset(name for name, _ in asked.options):
        return None
    kinds, declared = _eager.kinds_of(leaves), _eager.structs_of(result)
    if kinds is None or declared is None or not _has_hash(asked):
        return None
    return _kept_program(asked, *declared, in_tree, kinds)


def _has_hash(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@_eager.once
def _kept_program(
    asked: _Asked, leaves: Any, out_tree: Any, in_tree: Any, kinds: tuple[_eager.Kind, ...]
) -> _eager.EagerProgram:
    declared, effect = asked.checked()
    structs = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
    function, results = _prepared(asked, declared, out_tree.unflatten(leaves), structs, in_tree)
    params = _primitive.params_of(function, results, effect, asked.vmap_method)
    return _eager.EagerProgram(_eager.Call(_primitive.of(function), params, out_tree), kinds)


def _takes_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function cannot be called without arguments."""
    with contextlib.suppress(TypeError, ValueError):  # some C functions have no signature
        parameters = inspect.signature(function).parameters.values()
        return any(p.default is p.empty and p.kind in _BY_POSITION for p in parameters)
    return False


def _is_array(value: object) -> bool:
    return isinstance(value, jax.Array | np.ndarray)


def check_vmap_method(method: str | None, title: str) -> None:
    """Raise a ValueError for an unknown `vmap_method`."""
    if method is not None and method not in VMAP_METHODS:
        raise ValueError(f"{title}: vmap_method={method!r} is not one of {VMAP_METHODS}.")


def effect_of(ordered: bool, pure: bool, title: str) -> Any | None:
    """Return the effect of calls with these options; raise a ValueError for a contradiction."""
    if ordered and pure:
        raise ValueError(
            f"{title}: ordered=True says that each call has an effect, and pure=True that it has "
            "none. Remove one of the two."
        )
    if pure:
        return None
    return _primitive.ORDERED if ordered else _primitive.UNORDERED


def _sorted(
    leaves: list[Any], tree: Any, place: str, takes_all: bool
) -> tuple[list[Any], Any, tuple[Fixed, ...], Any]:
    """Sort the leaves of the arguments into arrays and, if the call takes all, fixed values.

    Return the arrays and their structure, the fixed values and the structure of both.
    """
    if not takes_all:
        return [as_array(leaf, place) for leaf in leaves], tree, (), None
    fixed = tuple(Fixed(i, leaf) for i, leaf in enumerate(leaves) if _is_no_array(leaf))
    if not fixed:
        return [as_array(leaf, place) for leaf in leaves], tree, (), None
    for one in fixed:
        leaves[one.index] = None
    arrays, in_tree = jax.tree.flatten(jax.tree.unflatten(tree, leaves))
    return [as_array(array, place) for array in arrays], in_tree, fixed, tree


def _is_no_array(value: object) -> bool:
    tensorflow = frameworks.tensorflow()
    if tensorflow is not None and tensorflow.is_symbolic(value):
        return False  # `as_array` says what is wrong
    try:
        jnp.asarray(value)
    except (TypeError, ValueError):  # the latter for a text that names a dtype, such as "b"
        return True
    return False


def as_array(value: object, place: str) -> jax.Array:
    """Convert an argument to JAX's array; raise a TypeError if JAX or NumPy has no array for it."""
    tensorflow = frameworks.tensorflow()
    if tensorflow is not None and tensorflow.is_symbolic(value):
        raise TypeError(
            f"{place}: {value!r} is a tensor of a tf.function, which JAX cannot compute with. In "
            "TensorFlow call what is TensorFlow's, or a hostcall.callback, or take the whole JAX "
            "function across with hostcall.jax.to_tf."
        )
    try:
        # JAX takes NumPy's arrays as they are, and would compile a program that converts them.
        array: Any = value if _values.is_taken(value) else jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{place}: {value!r} is not an array, nor a structure of arrays. Give the function "
            "what is not an array by functools.partial; a call with wait=False takes it."
        ) from error
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) and not _values.is_key(array.dtype):
        raise TypeError(f"{place}: an argument is {array.dtype}, which NumPy does not have.")
    return array


def call_with_gradient(
    bind: Callable[[Any], list[Any]],
    grad: Callable[..., Any],
    function: JaxFunction,
    arrays: Sequence[Any],
) -> list[Any]:
    """Return the results of `bind(arrays)`, all flat, and let `grad` compute their gradient."""
    called = jax.custom_vjp(lambda *flat: bind(flat))

    def forward(*flat: Any) -> tuple[object, object]:
        results = called(*flat)
        return results, (flat, results)

    def backward(kept: Any, upstream: Any) -> tuple[object, ...]:
        flat, results = kept
        flat = list(map(jnp.asarray, flat))  # JAX keeps constants in types of its own
        inputs = jax.tree.unflatten(function.in_tree, flat)
        real = [_without_float0(u, result) for u, result in zip(upstream, results, strict=True)]
        pack = function.out_tree.unflatten
        given = _gradients(grad, function, inputs, pack(results), pack(real))
        pairs = enumerate(zip(given, flat, strict=True))
        return tuple(_as_cotangent(grad, number, *pair) for number, pair in pairs)

    called.defvjp(forward, backward)
    return list(called(*arrays))


def _gradients(
    grad: Callable[..., Any], function: JaxFunction, inputs: Any, results: object, upstream: Any
) -> list[Any]:
    """Return the gradients that `grad` computes, flat: an entry for each leaf of the inputs."""
    try:
        given = gradients_by(grad, inputs, results, upstream)
    except Exception as error:
        if _comes_from_tensorflow(error):
            raise _wants_jax(function) from error
        raise
    flat: list[Any] = []
    pairs = zip(inputs, gradients_listed(given, len(inputs), function.description), strict=True)
    for argument, gradient in pairs:
        leaves = jax.tree.structure(argument)
        flat += [None] * leaves.num_leaves if gradient is None else leaves.flatten_up_to(gradient)
    if any(map(frameworks.is_tensorflows, flat)):
        raise _wants_jax(function)
    return flat


def _without_float0(upstream: jax.Array | np.ndarray, result: Any) -> jax.Array | np.ndarray:
    """Replace JAX's gradient of an integer, which has no bytes, by zeros. Keys have no zeros."""
    has_no_bytes = upstream.dtype == jax.dtypes.float0 and not _values.is_key(result.dtype)
    return jnp.zeros_like(result) if has_no_bytes else upstream


def _as_cotangent(
    grad: Callable[..., Any], number: int, gradient: Any, value: Any
) -> jax.Array | np.ndarray:
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return np.zeros(value.shape, jax.dtypes.float0)
    if gradient is None:
        return jnp.zeros_like(value)
    cotangent = jnp.asarray(gradient)
    given, wanted = (f"{one.dtype.name}{one.shape}" for one in (cotangent, value))
    if given != wanted:  # JAX's error would name a function of hostcall
        raise wrong_gradient(grad, given, number, wanted)
    return cotangent


def _comes_from_tensorflow(error: BaseException) -> bool:
    directories = source_location.directories_of("tensorflow")
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code.co_filename.startswith(directories) for frame in frames)


def _wants_jax(function: JaxFunction) -> TypeError:
    return TypeError(
        f"hostcall: the gradient of {function.description} is TensorFlow code, and it is asked for "
        "in JAX, with JAX's arrays. Make it a hostcall.callback of its own, or write it without "
        "names of TensorFlow's, as in `lambda inputs, results, upstream: upstream * results`: "
        "either works in both."
    )


def call_of_user_function(user: UserFunction, args: tuple[Any, ...]) -> object:
    """Return the results of a callback for JAX arrays, in the structure of the declared result."""
    # A stateful callback becomes an ordered call, any other one a pure call. `jax.vmap` makes pure
    # calls one by one unless a `vmap_method` is declared.
    named = f"{user.given_name}, " if user.given_name is not None else ""
    called_as = f"hostcall.callback of {named}{source_location.of_function(user.function)}"
    place = f"{called_as}, called at {source_location.caller()}"
    if user.takes_tensors:
        raise TypeError(
            f"{place}: it is of kind='eager', so that its function takes TensorFlow's tensors, and "
            "it is called with JAX's arrays. Make it of kind='numpy', the default, or call it in a "
            "TensorFlow function and that by hostcall.jax.from_tf."
        )
    leaves, in_tree = jax.tree.flatten(args)
    arrays = [as_array(leaf, place) for leaf in leaves]
    declared = user.options
    results, out_tree = flatten_results(_declared(declared.result, arrays, in_tree, user), place)
    function = JaxFunction(
        hashable(user.function),
        declared.with_fields(result=None),
        place,
        stateful=user.stateful,
        given_name=user.given_name,
        in_tree=in_tree,
        out_tree=out_tree,
        title=user.given_name or str(getattr(user.function, "__name__", "callback")),
        result_dtypes=_values.dtypes_of(results),
    )
    check_no_results(declared.call_log, [spec.dtype for spec in results], user.stateful, place)

    def bind(flat: Any) -> list[Any]:
        effect = _primitive.ORDERED if user.stateful else None
        method = declared.vmap_method or (None if user.stateful else SEQUENTIAL)
        return _primitive.bind(function, flat, results, effect, method)

    if user.grad is None:
        called = bind(arrays)
    else:
        called = call_with_gradient(bind, user.grad, function, arrays)
    return jax.tree.unflatten(out_tree, called)


def _declared(result: Any, arrays: list[Any], in_tree: Any, user: UserFunction) -> object:
    """Return the declared result, a structure of specs."""
    if not specs.is_shape_function(result):
        return result
    tensorflow = frameworks.tensorflow()
    holds_keys = any(_values.is_key(array.dtype) for array in arrays)
    if tensorflow is not None and not holds_keys:
        known = [
            tensorflow.spec([n if isinstance(n, int) else None for n in array.shape], array.dtype)
            for array in arrays
        ]
        try:
            return specs.ask(result, jax.tree.unflatten(in_tree, known), user.function)
        except TypeError as error:
            # It may make JAX's specs, which refuse TensorFlow's dtypes and shapes.
            if specs.is_of_arity(error):
                raise
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return specs.ask(result, jax.tree.unflatten(in_tree, structs), user.function)

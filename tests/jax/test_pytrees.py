"""Results that are pytrees of registered classes, and look like a function or like an array."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback, sparse

import hostcall.jax
from tests.support.jax.helpers import X, assert_same, each_mode, struct


@jax.tree_util.register_pytree_node_class
class Layer:
    """One that can be called, as those of Equinox and of Flax."""

    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, x: Any) -> Any:
        return self.w @ x

    def tree_flatten(self) -> Any:
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Self:
        return cls(*children)


LAYER = Layer(jnp.arange(6.0).reshape(2, 3))
SPARSE = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))


def specs_of(tree: Any) -> Any:
    return jax.eval_shape(lambda tree: tree, tree)


def doubled(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: 2 * np.asarray(leaf), tree)


CALLS: dict[str, Any] = {
    "call": lambda tree: hostcall.jax.call(doubled, specs_of(tree), tree),
    "callback": lambda tree: hostcall.callback(doubled, result=specs_of(tree))(tree),
    "keyword": lambda tree: hostcall.callback(lambda tree: doubled(tree), result=specs_of(tree))(
        tree=tree
    ),
    "function": lambda tree: hostcall.jax.call(doubled, lambda tree: specs_of(tree), tree),
}
TREES = {"layer": LAYER, "sparse": SPARSE, "nested": {"a": [LAYER, SPARSE], "b": X}}


@each_mode
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", TREES)
def test_the_leaves_are_the_results(mode: Any, call: str, name: str) -> None:
    tree = TREES[name]
    assert_same(mode(CALLS[call])(tree), io_callback(doubled, specs_of(tree), tree))


@each_mode
def test_a_partial_is_a_function_unless_it_holds_specs(mode: Any) -> None:
    of_rank = jax.tree_util.Partial(lambda rank, x: struct(x.shape[:rank], x.dtype), 1)
    bare = jax.tree_util.Partial(lambda x: struct(x.shape, x.dtype))
    for result in (of_rank, bare):
        program = mode(lambda x, r=result: hostcall.jax.call(doubled, r, x))
        assert_same(program(X), 2 * X)
    scaling = jax.tree_util.Partial(jnp.multiply, X)
    assert_same(mode(CALLS["call"])(scaling), doubled(scaling))


def test_a_dtype_alone_is_no_result() -> None:
    with pytest.raises(TypeError, match=r"float32.* is a dtype alone. Write jax\.ShapeDtypeStruct"):
        hostcall.jax.call(doubled, [np.float32], X)

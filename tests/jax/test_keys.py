"""Random keys as arguments and results: functions get their data, and programs get keys."""

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.jax.helpers import X, each_mode, failure, struct

call = hostcall.jax.call

KEY = jax.random.key(3)
KEYS = jax.random.split(KEY, 4)
SPEC = struct([], KEY.dtype)

each_implementation = pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])


def assert_same_keys(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(jax.random.key_data(actual), jax.random.key_data(expected))


def turned(data: Any) -> Any:
    assert isinstance(data, np.ndarray)
    return data[..., ::-1] + np.uint32(1)


def turned_keys(keys: Any) -> Any:
    data = np.asarray(jax.random.key_data(keys))
    return jax.random.wrap_key_data(turned(data), impl=jax.random.key_impl(keys))


def by_call(keys: Any) -> Any:
    return call(turned, keys, keys, pure=True)


def by_callback(keys: Any) -> Any:
    return hostcall.callback(turned, result=lambda keys: keys)(keys)


def by_structure(keys: Any) -> Any:
    def swapped(pair: Any) -> Any:
        return {"keys": turned(pair[1]), "x": pair[0]}

    return call(swapped, lambda pair: {"keys": pair[1], "x": pair[0]}, (X, keys))["keys"]


def by_returned_keys(keys: Any) -> Any:
    impl = str(jax.random.key_impl(keys))

    def of_data(data: Any) -> Any:
        return jax.random.wrap_key_data(turned(data), impl=impl)

    return call(of_data, keys, keys)


def with_out(keys: Any) -> Any:
    @hostcall.callback(result=lambda keys: keys, out=True)
    def write(data: Any, out: Any) -> None:
        out[...] = turned(data)

    return write(keys)


@pytest.mark.pairwise
@each_mode
@each_implementation
@pytest.mark.parametrize("way", [by_call, by_callback, by_structure, by_returned_keys, with_out])
def test_they_go_in_and_out(mode: Any, impl: str, way: Any) -> None:
    key = jax.random.key(7, impl=impl)
    for keys in (key, jax.random.split(key, (2, 3))):
        assert_same_keys(mode(way)(keys), turned_keys(keys))


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_batches(method: str) -> None:
    def one(key: Any, x: Any) -> Any:
        return call(lambda k, x: turned(k), key, key, x, pure=True, vmap_method=method)

    assert_same_keys(jax.jit(jax.vmap(one))(KEYS, X), turned_keys(KEYS))
    assert_same_keys(jax.jit(jax.vmap(one, (0, None)))(KEYS, 1.0), turned_keys(KEYS))


def test_loops_branches_and_derivatives() -> None:
    def step(key: Any, _: Any) -> Any:
        return lax.cond(jax.random.bits(key) >= 0, by_call, lambda key: key, key), key

    def program(x: Any, key: Any) -> Any:
        last, every = lax.scan(step, key, None, 3)
        return x * x * jax.random.uniform(last) + jax.random.uniform(every[1])

    last = turned_keys(turned_keys(turned_keys(KEY)))
    slope = jax.jit(jax.grad(program))(3.0, KEY)
    np.testing.assert_allclose(slope, 6 * jax.random.uniform(last), rtol=1e-6)


def test_a_gradient_of_the_users() -> None:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return None, upstream[1] * jax.random.uniform(inputs[0])

    spec = (SPEC, struct([]))
    drawn = hostcall.callback(lambda key, x: (turned(key), 2 * x), result=spec, grad=grad)
    slope = jax.jit(jax.grad(lambda x: drawn(KEY, x)[1]))(np.float32(3))
    np.testing.assert_allclose(slope, jax.random.uniform(KEY), rtol=1e-6)


def test_results_that_are_kept() -> None:
    calls: list[int] = []

    def count(data: Any) -> Any:
        calls.append(1)
        return jax.random.wrap_key_data(turned(data))

    remembered = hostcall.callback(count, result=SPEC, stateful=False, memo=True)
    for _ in range(3):
        assert_same_keys(jax.jit(lambda key: remembered(key))(KEY), turned_keys(KEY))
    assert calls == [1]


def test_shards() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    divided = jax.shard_map(by_call, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i"))
    assert_same_keys(jax.jit(divided)(KEYS), turned_keys(KEYS))
    sharding = jax.NamedSharding(mesh, jax.P("i"))
    joint = jax.jit(lambda keys: call(turned, keys, keys, sharding=sharding))
    assert_same_keys(joint(KEYS), turned_keys(KEYS))


def test_keys_of_another_kind_are_an_error() -> None:
    other = jax.random.key(0, impl="rbg")
    error = failure(jax.jit(lambda: call(lambda: other, SPEC)))
    assert "a result is of dtype key<rbg>, and key<fry> is declared" in str(error)
    error = failure(jax.jit(lambda: call(lambda: np.zeros([3], np.uint32), SPEC)))
    assert "declared" in str(error)
    error = failure(jax.jit(lambda: call(lambda: KEY, struct([2], np.uint32))))
    assert "jax.random.key_data" in str(error)

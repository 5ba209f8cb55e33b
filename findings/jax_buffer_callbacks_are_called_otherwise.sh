#!/usr/bin/env bash
# Two equal buffer callbacks of JAX are one call, and one of a sharded array is a call per device.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: jax.pure_callback, io_callback and jax.experimental.buffer_callback, that one also with
#   has_side_effect=True, in the same programs: how often is the function called?
# Behaviour: XLA makes one of two equal calls for a buffer callback without side effects, and none
#   of jax.pure_callback's, which have names of their own. Of an array that is sharded over four
#   devices, JAX's other callbacks get the whole in one call, and a buffer callback gets the whole
#   on each of the four. In a branch under vmap, where io_callback is refused since elements that do
#   not take it would have its effects, a buffer callback with side effects runs for all elements.
#   With side effects and a sharded array, it cannot be compiled.
# It exits with 0 if it sees the lines at its end, and with 1 if JAX behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec

calls = []
lock = threading.Lock()


def double(x):
    with lock:
        calls.append(np.shape(x))
    return np.asarray(x) * np.float32(2)


def spec(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def pure(x):
    return jax.pure_callback(double, spec(x), x, vmap_method="sequential")


def effect(x):
    return io_callback(double, spec(x), x)


def write(context, result, x):
    np.asarray(result)[...] = double(x)


def buffer(x, **options):
    return buffer_callback(write, spec(x), vmap_method="sequential", **options)(x)


def buffer_effect(x):
    return buffer(x, has_side_effect=True)


def twice(call, x):
    return call(x), call(x)


def unused(call, x):
    call(x)
    return x + 1


def branch(call, x):
    def one(x):
        return jax.lax.cond(x == 0, call, lambda x: x, x)

    return jax.vmap(one)(x)


def sharded(call, x):
    return call(x)


mesh = Mesh(np.array(jax.devices()), ("i",))
x = jnp.arange(4.0)
divided = jax.device_put(x, NamedSharding(mesh, PartitionSpec("i")))
for program in (twice, unused, branch, sharded):
    for call in (pure, effect, buffer, buffer_effect):
        calls.clear()
        argument = divided if program is sharded else x
        try:
            jax.block_until_ready(jax.jit(lambda x: program(call, x))(argument))
            jax.effects_barrier()
            print(f"{program.__name__} {call.__name__}: {len(calls)}", *sorted(set(calls)))
        except (NotImplementedError, jax.errors.JaxRuntimeError) as error:
            print(f"{program.__name__} {call.__name__}: {type(error).__name__}")
END
JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4 \
  "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
twice pure: 2 (4,)
twice effect: 2 (4,)
twice buffer: 1 (4,)
twice buffer_effect: 2 (4,)
unused pure: 0
unused effect: 1 (4,)
unused buffer: 0
unused buffer_effect: 1 (4,)
branch pure: 4 ()
branch effect: NotImplementedError
branch buffer: 4 ()
branch buffer_effect: 4 ()
sharded pure: 1 (4,)
sharded effect: 1 (4,)
sharded buffer: 4 (4,)
sharded buffer_effect: JaxRuntimeError
END

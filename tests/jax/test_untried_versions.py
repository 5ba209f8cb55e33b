"""hostcall.jax with a JAX that was not tried: it says so, and leaves alone what has changed."""

import json
import re
import tomllib

import jax
import pytest

from hostcall.jax import _names
from hostcall_runtime import _patching
from tests.support.jax.helpers import run_python
from tests.support.pages import ROOT, read

_DOCTORED = """
import dataclasses, importlib, json, warnings
import jax, jax.numpy as jnp, numpy as np
from jax import lax

def loop(x):
    return lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * x + i, x).sum()

def left(y):
    return lax.while_loop(lambda v: v[0] < 3, lambda v: v + y + 1, y)

def programs(x):
    return [
        jax.grad(loop)(x).tolist(),
        jax.vmap(lambda y: lax.while_loop(lambda v: v < 3, lambda v: v + y + 1, y))(x).tolist(),
        jax.vmap(lambda y: lax.cond(y > 1, jnp.sin, jnp.cos, y))(x).tolist(),
        jax.jvp(left, (x,), (x,))[1].tolist(),
        jax.jit(jnp.sort)(x).tolist(),
    ]

def with_another_parameter(stock):
    if dataclasses.is_dataclass(stock):
        return dataclasses.replace(stock, rule=with_another_parameter(stock.rule))
    return lambda *args, of_the_next_version=None, **named: stock(*args, **named)

jax.__version__, jax.__version_info__ = "0.13.0", (0, 13, 0)
owner = importlib.import_module(MODULE)
for part in PATH[:-1]:
    owner = getattr(owner, part)
if isinstance(owner, dict):
    key = getattr(lax, PATH[-1])
    owner[key] = doctored = with_another_parameter(owner[key])
else:
    setattr(owner, PATH[-1], with_another_parameter(getattr(owner, PATH[-1])))
    doctored = getattr(owner, PATH[-1])
x = jnp.arange(3.0)
stock = programs(x)
jax.clear_caches()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import hostcall.jax
stands = owner[key] if isinstance(owner, dict) else getattr(owner, PATH[-1])
same = stands is doctored and programs(x) == stock
told = [[str(one.message), one.category.__name__, one.filename] for one in said]
pure = jax.jit(lambda v: hostcall.jax.call(np.negative, v, v, pure=True))(x).tolist()
try:
    step = lambda c, v: (c, hostcall.jax.call(np.negative, v, v))
    scanned = jax.jit(lambda v: lax.scan(step, 0, v)[1])(x).tolist()
except NotImplementedError as error:
    scanned = str(error)
print(json.dumps({"same": same, "told": told, "pure": pure, "scanned": scanned}))
"""

_CHANGED = {
    "jax._src.lax.control_flow.loops:_scan_known_hoisting": _names.CONTROL_FLOW,
    "jax._src.interpreters.batching:fancy_primitive_batchers.while_p": _names.CONTROL_FLOW,
    "jax._src.interpreters.mlir:_lowerings.while_p": _names.CONTROL_FLOW,
    "jax._src.interpreters.mlir:_lowerings.reduce_p": _names.REDUCERS,
    "jax._src.interpreters.pxla:UnloadedMeshExecutable.build_unsafe_call": _names.EXECUTION,
    "jax._src.compiler:backend_compile_and_load": _names.OVERLAP,
    "jax._src.compiler:_compile_and_write_cache": _names.DISK,
}


@pytest.mark.parametrize("changed", _CHANGED)
def test_what_has_changed_is_left_alone(changed: str) -> None:
    module, _, path = changed.partition(":")
    code = _DOCTORED.replace("MODULE", repr(module)).replace("PATH", repr(path.split(".")))
    found = json.loads(run_python(code).splitlines()[-1])
    assert found["same"]
    (untried, left_out), feature = found["told"], _CHANGED[changed]
    assert untried[0] == _patching.untested_jax("0.13.0")
    assert "JAX 0.13.0 has" in left_out[0]
    assert "with other parameters, (args, of_the_next_version, named) for (" in left_out[0]
    assert f"needs for this: {feature}. Without it, " in left_out[0]
    assert {one[1] for one in found["told"]} == {"RuntimeWarning"}
    assert {one[2] for one in found["told"]} == {"<string>"}  # of whoever imports it
    assert found["pure"] == [-0.0, -1.0, -2.0]
    if feature == _names.CONTROL_FLOW:
        assert found["scanned"].startswith("Effects not supported in `scan`: [HostCall")
    else:
        assert found["scanned"] == found["pure"]


def test_the_versions_that_were_tried() -> None:
    assert _patching.untested_jax(jax.__version__) is None
    for version in ("0.8.0", "0.8.3", "0.10.2", "0.12.0.1"):
        assert _patching.untested_jax(version) is None
    for version in ("0.13.0", "1.0", "0.12.1.dev20261101", "0.12.0rc1", "0.1.8"):
        assert f"and this is {version}. " in str(_patching.untested_jax(version))


def test_pyproject_and_the_page_of_versions_name_those_that_were_tried() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    major, minor = map(int, _patching.TESTED_JAX[-1].split("."))
    wanted = f"jax>={_patching.TESTED_JAX[0]},<{major}.{minor + 1}"
    assert extras["jax"] == [wanted]
    assert f"pip install '{wanted}'" == _patching.INSTALL_JAX
    _, _, section = read("docs/versions.md").partition("\n## What was run\n")
    rows = re.findall(r"^\| (0\.\d+)\.[\d.]+ \|", section.split("\n## ")[0], re.MULTILINE)
    assert set(rows) == {*_patching.TESTED_JAX}

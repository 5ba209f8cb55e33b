"""hostcall in JAX: Python functions in JAX programs, and callbacks that cross between frameworks.

    import hostcall.jax

    y = hostcall.jax.call(f, jax.ShapeDtypeStruct(x.shape, x.dtype), x)    # in jax.jit, too

`import hostcall` does not need JAX, and does not import it. `import hostcall.jax` does not need
TensorFlow, and does not import it; `to_tf` and `from_tf` do.
"""

from hostcall_runtime import _patching

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hostcall.jax needs JAX, which cannot be imported here: "
        f"{error}. Install it with\n\n    pip install 'hostcall[jax]'\n\n"
        f"or, to choose it yourself, {_patching.INSTALL_JAX}. TensorFlow's side of hostcall works "
        "without it.",
        name=error.name,
    ) from error

from hostcall.jax import _names

_names.check()

from hostcall.jax import _loading  # noqa: E402
from hostcall.jax._bridges import from_tf, to_tf  # noqa: E402
from hostcall.jax._call import call  # noqa: E402

_loading.load()

__all__ = ["call", "from_tf", "to_tf"]


def __dir__() -> list[str]:
    return [*__all__]

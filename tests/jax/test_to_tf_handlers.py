"""hostcall.jax.to_tf of programs with custom calls: linear algebra, handlers, others' callbacks."""

import ast
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from jax import lax
from jax._src import effects
from jax.experimental import sparse
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.scipy import linalg

import hostcall.jax
from hostcall._tf import relayed_handlers
from hostcall_mlir.exporting import jaxlib_names
from tests.support.helpers import gradient_of, jitted, plain
from tests.support.jax.helpers import eagerly, run_python, struct
from tests.support.native_code import handlers, headers_of_ours
from tests.support.versions import reads_programs_of_jax

pytestmark = reads_programs_of_jax

to_tf = hostcall.jax.to_tf

each_mode = pytest.mark.parametrize("mode", [eagerly, plain, jitted])

A = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 5.0]])  # positive definite
SKEW = np.array([[1.0, 2.0, 0.0], [-3.0, 0.5, 1.0], [0.0, 4.0, 2.0]])
MANY = np.stack([A, 2 * A, A + np.eye(3)])
B = np.array([1.0, -2.0, 3.0])
DTYPES = ["float64", "complex64", "complex128"]


def magnitudes(values: Any) -> Any:
    """What of eigenvalues has no order of its own."""
    return jnp.sort(jnp.abs(values))


def of_csr(x: Any) -> Any:
    matrix = scipy.sparse.csr_matrix(np.where(SKEW > 0, SKEW, 0).astype(np.float32))
    return sparse.BCSR.from_scipy_sparse(matrix) @ x.astype(np.float32)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: jnp.linalg.solve(a, a[0]),
    "inverse": jnp.linalg.inv,
    "determinant": jnp.linalg.det,
    "slogdet": lambda a: jnp.linalg.slogdet(a),
    "cholesky": jnp.linalg.cholesky,
    "cho_solve": lambda a: linalg.cho_solve(linalg.cho_factor(a), a[0]),
    "solve_triangular": lambda a: linalg.solve_triangular(a, a[0], lower=True),
    "eigh": lambda a: jnp.linalg.eigh(a)[0],
    "eigh_vectors": lambda a: jnp.abs(jnp.linalg.eigh(a)[1]),
    "eig": lambda a: magnitudes(jnp.linalg.eig(a)[0]),
    "eigvals": lambda a: magnitudes(jnp.linalg.eigvals(a)),
    "qr": lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
    "qr_complete": lambda a: jnp.abs(jnp.linalg.qr(a[:, :2], mode="complete")[0]),
    "qr_pivoting": lambda a: linalg.qr(a, pivoting=True)[2],
    "svd": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "svd_of_other_algorithm": lambda a: lax.linalg.svd(
        a, compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR
    ),
    "pinv": jnp.linalg.pinv,
    "lstsq": lambda a: jnp.linalg.lstsq(a, a[0])[0],
    "norm": lambda a: jnp.linalg.norm(a, 2),
    "lu": linalg.lu,
    "lu_factor": linalg.lu_factor,
    "expm": linalg.expm,
    "sqrtm": linalg.sqrtm,
    "schur": lambda a: jnp.abs(linalg.schur(a)[0]),
    "hessenberg": linalg.hessenberg,
    "tridiagonal": lambda a: lax.linalg.tridiagonal(a)[1],
    "tridiagonal_solve": lambda a: lax.linalg.tridiagonal_solve(
        *(v.at[end].set(0) for v, end in ((a[0], 0), (a[1], 0), (a[2], 2))), a[:, :1]
    ),
    "polar": lambda a: linalg.polar(a)[0],
    "fft": lambda a: jnp.abs(jnp.fft.fft2(a)),
    "csr": of_csr,
}
# Those that are for real matrices, or for numbers of one size.
REAL = {"polar", "csr"}


def close(got: Any, wanted: Any, rtol: float = 2e-4) -> None:
    flat = tf.nest.flatten(got), jax.tree.leaves(wanted)
    for one, other in zip(*flat, strict=True):
        assert one.dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one.numpy(), other, rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_linear_algebra(program: Any) -> None:
    a = A.astype(np.float32)
    close(jitted(to_tf(program))(tf.constant(a)), jax.jit(program)(a))


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in REAL])
def test_linear_algebra_of_each_dtype(name: str, dtype: str) -> None:
    program = PROGRAMS[name]
    with jax.enable_x64(True):
        a = (A + (0.25j * (SKEW - SKEW.T) if "complex" in dtype else 0)).astype(dtype)
        close(jitted(to_tf(program))(tf.constant(a)), jax.jit(program)(a))


@pytest.mark.each_value
@each_mode
@pytest.mark.parametrize("name", ["solve", "eig", "schur", "lu", "expm", "sqrtm"])
def test_matrices_that_are_not_symmetric(mode: Any, name: str) -> None:
    a = SKEW.astype(np.float32)
    close(mode(to_tf(PROGRAMS[name]))(tf.constant(a)), jax.jit(PROGRAMS[name])(a))


@pytest.mark.each_value
@each_mode
@pytest.mark.parametrize("name", ["solve", "cholesky", "eigh", "svd", "qr", "lu", "expm", "eig"])
def test_batches(mode: Any, name: str) -> None:
    many, program = MANY.astype(np.float32), jax.vmap(PROGRAMS[name])
    close(mode(to_tf(program))(tf.constant(many)), jax.jit(program)(many))


def test_batches_of_unknown_size() -> None:
    program = to_tf(jax.vmap(PROGRAMS["solve"]), polymorphic_shapes="batch, ...")
    compiled = tf.function(program, input_signature=[tf.TensorSpec([None, 3, 3])], jit_compile=True)
    for count in (1, 3):
        many = MANY[:count].astype(np.float32)
        close(compiled(tf.constant(many)), jax.vmap(PROGRAMS["solve"])(many))


@pytest.mark.each_value
@each_mode
@pytest.mark.parametrize("name", ["solve", "cholesky", "eigh", "svd", "qr", "expm", "slogdet"])
def test_gradients(mode: Any, name: str) -> None:
    def total(a: Any) -> Any:
        return sum(leaf.sum() for leaf in jax.tree.leaves(PROGRAMS[name](a)))

    a = A.astype(np.float32)
    got = mode(lambda a: gradient_of(to_tf(total), a))(tf.constant(a))
    close(got, jax.grad(total)(a), 1e-3)


def test_second_derivatives() -> None:
    def total(a: Any) -> Any:
        return jnp.linalg.inv(a).sum()

    def twice(a: Any) -> Any:
        return gradient_of(lambda a: tf.reduce_sum(gradient_of(to_tf(total), a)), a)

    a = A.astype(np.float32)
    close(jitted(twice)(tf.constant(a)), jax.grad(lambda a: jax.grad(total)(a).sum())(a), 1e-3)


@each_mode
def test_beside_calls_of_python_in_loops_and_branches(mode: Any) -> None:
    log: list[float] = []

    def program(a: Any) -> Any:
        def body(_: int, b: Any) -> Any:
            b = jnp.linalg.solve(a, b)
            hostcall.jax.call(lambda v: log.append(float(v)), None, b[0], ordered=True)
            return lax.cond(b[0] > 0, lambda b: jnp.linalg.cholesky(a) @ b, lambda b: -b, b)

        return lax.fori_loop(0, 3, body, jnp.asarray(B, np.float32))

    a = A.astype(np.float32)
    wanted, noted = jax.block_until_ready(jax.jit(program)(a)), [*log]
    log.clear()
    close(mode(to_tf(program))(tf.constant(a)), wanted)
    np.testing.assert_allclose(log, noted, rtol=1e-5)


@each_mode
def test_values_that_lapack_refuses_are_nan(mode: Any) -> None:
    a = -A.astype(np.float32)
    assert np.isnan(mode(to_tf(jnp.linalg.cholesky))(tf.constant(a)).numpy()).any()
    singular = np.zeros([3, 3], np.float32)
    got = mode(to_tf(PROGRAMS["solve"]))(tf.constant(singular))
    np.testing.assert_array_equal(got, jax.jit(PROGRAMS["solve"])(singular))


def registered(*names: str) -> str:
    """Register one of the tests' handlers in JAX, or one for each of two stages; the target."""
    library, target = handlers(headers_of_ours()), f"tests_{'_'.join(names)}"
    capsules = [jax.ffi.pycapsule(library[name]) for name in names]
    stages = capsules[0] if len(names) == 1 else dict(zip(STAGES, capsules, strict=True))
    jax.ffi.register_ffi_target(target, stages, platform="cpu")
    return target


STAGES = ("instantiate", "execute")
ATTRIBUTES = {
    "factor": np.float32(3),
    "offset": np.int64(2),
    "negative": True,
    "word": "grüße",
    "half": np.float64(0.5),
}


@each_mode
@pytest.mark.parametrize("name", ["scale", "later"])
def test_handlers_of_the_users_own(mode: Any, name: str) -> None:
    """One that takes attributes, and one that returns a future."""
    called = jax.ffi.ffi_call(registered(name), struct(B.shape))
    given = ATTRIBUTES if name == "scale" else {}

    def program(x: Any) -> Any:
        return called(x, **given)

    x = np.abs(B).astype(np.float32)
    close(mode(to_tf(program))(tf.constant(x)), jax.jit(program)(x))


@each_mode
def test_the_error_of_a_handler(mode: Any) -> None:
    program = jax.ffi.ffi_call(registered("fail"), struct([], np.int32))
    with pytest.raises(tf.errors.NotFoundError, match="no signal from sensor 5"):
        mode(to_tf(program))(tf.constant(5))


@each_mode
def test_a_handler_that_has_a_state(mode: Any) -> None:
    """JAX does not tell what other stages there are, and a state is kept in a form of its own."""
    program = jax.ffi.ffi_call(registered("instantiate", "use_state"), struct(B.shape))
    with pytest.raises(tf.errors.OpError, match="the handler asks for its state"):
        mode(to_tf(program))(tf.constant(B, tf.float32))


def test_a_handler_that_makes_a_state() -> None:
    program = jax.ffi.ffi_call(registered("instantiate"), struct(B.shape))
    with pytest.raises(NotImplementedError, match=r"'tests_instantiate'.* makes a state"):
        to_tf(program)(tf.constant(B, tf.float32))


@pytest.mark.parametrize("version", [(0, 6), (1, 0)])
def test_a_handler_of_an_unknown_version(monkeypatch: Any, version: tuple[int, int]) -> None:
    """That of another jaxlib's, say, whose binary interface may be another one."""
    described = types.SimpleNamespace(
        describe_handler=lambda _: (1, *version, False), ffi_api_version=lambda: (0, 2)
    )
    library = types.SimpleNamespace(load=lambda _: described)
    monkeypatch.setattr(relayed_handlers, "_library", library)
    monkeypatch.setattr(relayed_handlers, "_registered", set())
    text = rf"'lapack_\w+_ffi'.*version {version[0]}\.{version[1]} of XLA's FFI.*up to 0\.5"
    with pytest.raises(NotImplementedError, match=text):
        to_tf(PROGRAMS["solve"])(tf.constant(A, tf.float32))


def test_a_buffer_callback() -> None:
    program = buffer_callback(lambda *_: None, struct(B.shape))
    with pytest.raises(NotImplementedError, match="writes to the memory of JAX's XLA"):
        to_tf(program)(tf.constant(B, tf.float32))


class Note(effects.Effect):
    """An effect of the tests' own, which JAX orders."""


NOTE = Note()
effects.ordered_effects.add_type(Note)
effects.lowerable_effects.add_type(Note)
effects.control_flow_allowed_effects.add_type(Note)


def emitting(name: str, function: Callable[..., Any], ordered: bool = False) -> Callable[..., Any]:
    """A primitive that is lowered to a Python callback, as those of equinox and tesseract_jax."""
    primitive = Primitive(f"tests_{name}")
    primitive.multiple_results = True
    if ordered:
        primitive.def_effectful_abstract_eval(lambda x: ([x], {NOTE}))
    else:
        primitive.def_abstract_eval(lambda x: [x])

    def lower(context: Any, x: Any) -> Any:
        token = context.tokens_in.get(NOTE) if ordered else None
        results, token, kept = mlir.emit_python_callback(
            context,
            lambda v: (function(np.asarray(v)),),
            token,
            [x],
            context.avals_in,
            context.avals_out,
            has_side_effect=ordered,
        )
        if ordered:
            context.set_tokens_out(mlir.TokenSet({NOTE: token}))
        context.module_context.add_keepalive(kept)
        return results

    mlir.register_lowering(primitive, lower, platform="cpu")
    return lambda x: primitive.bind(x)[0]


cube = emitting("cube", lambda v: v**3)
sort = emitting("sort", np.sort)


@pytest.mark.each_value
@each_mode
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int32, np.complex64])
def test_callbacks_of_other_lowering_rules(mode: Any, dtype: Any) -> None:
    def program(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, v: sort(v), cube(x)), sort(-x)

    x = B.astype(dtype)
    close(mode(to_tf(program))(tf.constant(x)), jax.jit(program)(x))


@each_mode
def test_callbacks_of_other_lowering_rules_on_truth_values(mode: Any) -> None:
    x = B > 0
    close(mode(to_tf(sort))(tf.constant(x)), np.sort(x))


@each_mode
def test_gradients_around_callbacks_of_other_lowering_rules(mode: Any) -> None:
    @jax.custom_jvp
    def cubed(x: Any) -> Any:
        return cube(x)

    cubed.defjvps(lambda tangent, result, x: 3 * tangent * x**2)
    x = np.sort(B).astype(np.float32)
    got = mode(lambda x: gradient_of(to_tf(lambda x: sort(lax.stop_gradient(x)) * cubed(x)), x))(
        tf.constant(x)
    )
    close(got, 3 * x**3)


@each_mode
def test_ordered_callbacks_of_other_lowering_rules(mode: Any) -> None:
    log: list[float] = []

    def noted(v: Any) -> Any:
        log.append(float(v[0]))
        return v + 1

    note = emitting(f"note_{mode.__name__}", noted, ordered=True)

    def program(x: Any) -> Any:
        return note(note(x) * 2) - note(x)

    x = B.astype(np.float32)
    wanted, before = jax.block_until_ready(jax.jit(program)(x)), [*log]
    log.clear()
    close(mode(to_tf(program))(tf.constant(x)), wanted)
    assert log == before


@each_mode
def test_errors_of_callbacks_of_other_lowering_rules(mode: Any) -> None:
    def fail(v: Any) -> Any:
        raise KeyError("no such thing")

    program = emitting(f"fail_{mode.__name__}", fail)
    with pytest.raises(tf.errors.OpError) as caught:
        mode(to_tf(program))(tf.constant(B, tf.float32))
    assert "no such thing" in str(caught.value)
    assert "mlir.emit_python_callback of " in str(caught.value)
    assert isinstance(hostcall.last_error(caught.value), KeyError)


def test_callbacks_of_other_lowering_rules_are_not_saved(tmp_path: Any) -> None:
    module = tf.Module()
    specs = [tf.TensorSpec([3], tf.float32)]
    module.run = tf.function(to_tf(lambda x: cube(lax.stop_gradient(x))), input_signature=specs)
    with pytest.raises(ValueError, match="A SavedModel holds no Python code"):
        tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(hostcall.NotExportableError, match=r"emit_python_callback of .*lambda"):
        hostcall.export(tf.function(to_tf(cube), jit_compile=True), *specs)


def solving(a: Any) -> Any:
    return jnp.linalg.solve(a, a[0]), jnp.linalg.cholesky(a)


IN_TENSORFLOW = """
import numpy as np, tensorflow as tf, hostcall
{prepare}
loaded = {load}
a = tf.constant({a}, tf.float32)
print([value.numpy().tolist() for value in tf.nest.flatten(loaded(a))])
"""


@pytest.fixture
def printed_elsewhere(run_python: Callable[..., str]) -> Callable[..., Any]:
    """Runs a loaded program in a process of its own, and returns its results."""

    def printed(load: str, prepare: str = "") -> Any:
        code = IN_TENSORFLOW.format(load=load, prepare=prepare, a=A.tolist())
        return ast.literal_eval(run_python(code, JAX_PLATFORMS="cpu").strip().splitlines()[-1])

    return printed


@pytest.mark.parametrize("compiled", [True, None])
def test_a_saved_model_in_another_process(
    tmp_path: Any, compiled: Any, printed_elsewhere: Callable[..., Any]
) -> None:
    """It imports no JAX: jaxlib alone has the handlers."""
    module = tf.Module()
    module.run = tf.function(
        to_tf(solving), input_signature=[tf.TensorSpec([3, 3])], jit_compile=compiled
    )
    wanted = [value.numpy().tolist() for value in module.run(tf.constant(A, tf.float32))]
    tf.saved_model.save(module, str(tmp_path))
    assert printed_elsewhere(f"tf.saved_model.load({str(tmp_path)!r}).run") == wanted
    first = f"import jax; f = tf.saved_model.load({str(tmp_path)!r}).run"
    assert printed_elsewhere("f", first) == wanted


def test_a_saved_model_of_what_jax_cannot_differentiate(tmp_path: Any) -> None:
    """TensorFlow traces the gradients of all that it saves."""
    module = tf.Module()
    module.run = tf.function(to_tf(PROGRAMS["hessenberg"]), input_signature=[tf.TensorSpec([3, 3])])
    tf.saved_model.save(module, str(tmp_path))
    a, loaded = tf.constant(A, tf.float32), tf.saved_model.load(str(tmp_path)).run
    close(loaded(a), linalg.hessenberg(A.astype(np.float32)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="JAX has no gradient of it: "):
        gradient_of(loaded, a)
    with pytest.raises(NotImplementedError, match="hessenberg"):
        gradient_of(module.run, a)


def test_a_saved_model_whose_handlers_are_missing(tmp_path: Any, monkeypatch: Any) -> None:
    module = tf.Module()
    target = registered("later")
    called = jax.ffi.ffi_call(target, struct(B.shape))
    module.run = tf.function(to_tf(called), input_signature=[tf.TensorSpec([3])])
    tf.saved_model.save(module, str(tmp_path))
    x = B.astype(np.float32)
    close(tf.saved_model.load(str(tmp_path)).run(tf.constant(x**2)), x**2 + 1)
    monkeypatch.setattr(jaxlib_names, "ffi_handlers", dict)
    monkeypatch.setattr(relayed_handlers, "_registered", set())
    with pytest.warns(UserWarning, match=rf"{target}, whose handlers.*\n.*register_ffi_target"):
        tf.saved_model.load(str(tmp_path))


def test_an_exported_program_in_another_process(
    tmp_path: Any, printed_elsewhere: Callable[..., Any]
) -> None:
    function = tf.function(to_tf(solving), jit_compile=True)
    hostcall.export(function, tf.TensorSpec([3, 3])).save(tmp_path)
    wanted = [value.numpy().tolist() for value in function(tf.constant(A, tf.float32))]
    assert printed_elsewhere(f"hostcall.load({str(tmp_path)!r})") == wanted
    code = f"""
import numpy as np, hostcall_mlir
for partitioned in (False, True):
    loaded = hostcall_mlir.load({str(tmp_path)!r}, partitioned=partitioned)
    print([np.asarray(value).tolist() for value in loaded(np.array({A.tolist()}, np.float32))])
"""
    for line in run_python(code).strip().splitlines()[-2:]:
        got = ast.literal_eval(line)
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-5)
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-6)


def test_a_loaded_program_is_saved_in_turn(
    tmp_path: Any, printed_elsewhere: Callable[..., Any]
) -> None:
    function = tf.function(to_tf(solving), jit_compile=True)
    hostcall.export(function, tf.TensorSpec([3, 3])).save(tmp_path / "program")
    module = tf.Module()
    module.inner = hostcall.load(tmp_path / "program")
    module.run = tf.function(module.inner, input_signature=[tf.TensorSpec([3, 3])])
    wanted = [value.numpy().tolist() for value in module.run(tf.constant(A, tf.float32))]
    tf.saved_model.save(module, str(tmp_path / "model"))
    assert printed_elsewhere(f"tf.saved_model.load({str(tmp_path / 'model')!r}).run") == wanted

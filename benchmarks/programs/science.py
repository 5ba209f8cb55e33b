"""Programs with a simulator or a solver in them."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
import tensorflow as tf

from benchmarks.programs.program import Decorator, Function, Program, draws
from benchmarks.steps import Array

PLACES, ANGLES = 16, 4


def with_gradient(
    value: Callable[..., Array], slope: Callable[..., Array], shape: Any = ()
) -> Function:
    """Return an op of a function, whose gradient is the upstream one times another function's."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def op(x: Any) -> Any:
        y = tf.numpy_function(value, [x], x.dtype)
        y.set_shape(shape)

        def grad(upstream: Any) -> Any:
            by_x = tf.numpy_function(slope, [x, upstream], x.dtype)
            by_x.set_shape(x.shape)
            return by_x

        return y, grad

    function: Function = op
    return function


def energy(angles: Array) -> Array:
    """Return the energy of a circuit of two qubits, by rotations and controlled flips."""
    state = np.eye(4)[0]
    for first, second in angles.reshape(-1, 2):
        turns = [
            np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in (first, second)
        ]
        state = (np.kron(*turns) @ state)[[0, 1, 3, 2]]
    return np.asarray(state @ np.diag([1.0, -1.0, -1.0, 1.0]) @ state)


def slopes(angles: Array) -> Array:
    shifts = np.pi / 4 * np.eye(len(angles))
    return np.array([energy(angles + s) - energy(angles - s) for s in shifts])


def curvature(angles: Array) -> Array:
    shifts = np.pi / 4 * np.eye(len(angles))
    return np.array([slopes(angles + s) - slopes(angles - s) for s in shifts])


def circuit(part: Decorator) -> Function:
    """Build ten steps of a descent on a circuit's energy, by the parameter-shift rule."""
    op = with_gradient(energy, lambda angles, upstream: upstream * slopes(angles))

    @part
    def encoded(x: Any) -> Any:
        return tf.tanh(x) * np.pi

    @part
    def stepped(x: Any, gradient: Any) -> Any:
        return x - 0.1 * gradient / (1.0 + tf.norm(gradient))

    def step(x: Any) -> Any:
        for _ in tf.range(10):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = op(encoded(x))
            x = stepped(x, tape.gradient(value, x))
        return x

    return step


def second_derivatives(part: Decorator) -> Function:
    """Build a step of Newton's on a circuit, whose gradient has a gradient."""
    by_slopes = with_gradient(slopes, lambda angles, up: curvature(angles) @ up, [ANGLES])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def op(angles: Any) -> Any:
        value = tf.numpy_function(energy, [angles], angles.dtype)
        value.set_shape([])
        return value, lambda upstream: upstream * by_slopes(angles)

    @part
    def solved(hessian: Any, gradient: Any) -> Any:
        eye = tf.eye(ANGLES, dtype=hessian.dtype)
        return tf.linalg.solve(tf.matmul(hessian, hessian) + eye, gradient[:, None])[:, 0]

    def step(angles: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(angles)
            with tf.GradientTape() as inner:
                inner.watch(angles)
                value = op(angles)
            gradient = inner.gradient(value, angles)
        hessian = outer.jacobian(gradient, angles, experimental_use_pfor=False)
        return angles - 0.1 * solved(hessian, gradient)

    return step


def conducting(conductivity: Array) -> Any:
    along = scipy.sparse.diags([1.0, -1.0], offsets=[0, -1], shape=(PLACES + 1, PLACES))
    eye = scipy.sparse.eye(PLACES)
    differences = scipy.sparse.vstack(
        [scipy.sparse.kron(eye, along), scipy.sparse.kron(along, eye)]
    )
    matrix = differences.T @ scipy.sparse.diags(conductivity) @ differences
    return differences, scipy.sparse.linalg.splu(matrix.tocsc())


def temperature(conductivity: Array) -> Array:
    _, solver = conducting(conductivity)
    found: Array = solver.solve(np.ones(PLACES * PLACES))
    return found


def adjoint(conductivity: Array, upstream: Array) -> Array:
    differences, solver = conducting(conductivity)
    heat = solver.solve(np.ones(PLACES * PLACES))
    by_conductivity: Array = -(differences @ solver.solve(upstream)) * (differences @ heat)
    return by_conductivity


def sparse_solve(part: Decorator) -> Function:
    """Build a step that fits a model to a PDE's solution, by an adjoint sparse solve."""
    op = with_gradient(temperature, adjoint, [PLACES * PLACES])

    @part
    def modelled(weights: Any, features: Any) -> Any:
        return tf.exp(tf.linalg.matvec(features, weights))

    @part
    def loss_of(heat: Any) -> Any:
        return tf.reduce_mean((heat - 0.5) ** 2)

    def step(weights: Any, features: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = loss_of(op(modelled(weights, features)))
        return weights - 0.1 * tape.gradient(loss, weights), loss

    return step


def orbit(start: Array) -> Array:
    """Return the places of a planet at ten times."""

    def change(_: float, state: Array) -> Array:
        return np.concatenate([state[2:], -state[:2] / np.sum(state[:2] ** 2) ** 1.5])

    solved = scipy.integrate.solve_ivp(change, (0, 3), start, t_eval=np.linspace(0, 3, 10))
    return np.array(solved.y.T)


def integrated(part: Decorator) -> Function:
    """Build the error of an orbit that SciPy integrates."""

    @part
    def loss_of(places: Any, measured: Any) -> Any:
        return tf.reduce_sum((places - measured) ** 2)

    def step(start: Any, measured: Any) -> Any:
        places = tf.numpy_function(orbit, [start], tf.float64, stateful=False)
        places.set_shape([10, 4])
        return loss_of(places, measured)

    return step


@functools.cache
def spectrum(size: int) -> Array:
    return np.exp(-0.01 * np.fft.rfftfreq(size, 1 / size) ** 2)


def smoothed(signal: Array) -> Array:
    return np.fft.irfft(np.fft.rfft(signal) * spectrum(signal.shape[-1])).astype(signal.dtype)


def filtered(part: Decorator) -> Function:
    """Build five layers, with a filter of NumPy's behind each, and their gradient."""
    op = with_gradient(smoothed, lambda _, upstream: smoothed(upstream), [64, 128])

    @part
    def layer(x: Any, weights: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, weights))

    def step(x: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            y = x
            for _ in range(5):
                y = op(layer(y, weights))
            loss = tf.reduce_mean(y**2)
        return loss, tape.gradient(loss, weights)

    return step


def nearest(points: Array, others: Array) -> Array:
    distance = np.sum((points[:, None] - others[None]) ** 2, axis=-1)
    return np.argmin(distance, axis=1).astype(np.int32)


def aligned(part: Decorator) -> Function:
    """Build ten steps of the alignment of two point clouds: neighbours, then a rotation."""

    @part
    def turned(points: Any, partners: Any) -> Any:
        middle, other = tf.reduce_mean(points, 0), tf.reduce_mean(partners, 0)
        _, left, right = tf.linalg.svd(tf.matmul(points - middle, partners - other, True))
        return tf.matmul(points - middle, tf.matmul(left, right, transpose_b=True)) + other

    def step(points: Any, others: Any) -> Any:
        for _ in range(10):
            found = tf.numpy_function(nearest, [points, others], tf.int32)
            found.set_shape([points.shape[0]])
            points = turned(points, tf.gather(others, found))
        return points

    return step


def programs() -> list[Program]:
    angles = tf.constant(np.linspace(0.1, 1.0, ANGLES))
    features = tf.cast(0.1 * draws(2 * PLACES * (PLACES + 1), 6), tf.float64)
    start = tf.constant([1.0, 0.0, 0.0, 1.1], tf.float64)
    return [
        Program("a circuit in a loop of descents", circuit, (angles,)),
        Program("second derivatives of a circuit", second_derivatives, (angles,)),
        Program(
            "a sparse solve and its adjoint", sparse_solve, (tf.zeros(6, tf.float64), features)
        ),
        Program("an orbit by SciPy", integrated, (start, tf.zeros([10, 4], tf.float64))),
        Program("5 filters by NumPy, with gradients", filtered, (draws(64, 128), draws(128, 128))),
        Program("two point clouds, aligned", aligned, (draws(200, 3), draws(200, 3, seed=1))),
    ]

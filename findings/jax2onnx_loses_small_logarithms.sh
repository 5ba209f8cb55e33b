#!/usr/bin/env bash
# A program of JAX's that jax2onnx has converted gives 0 for log1p(1e-8), and marks -1 in a one-hot.
#
# Versions: jax2onnx 0.17.1 (October 2026), onnxruntime 1.32.0, onnx 1.23.2, jax 0.12.0.1, numpy
#   2.5.5, Python 3.13, November 2026.
# Input: one function of JAX's at a time, of float32 or int32 numbers, compiled by JAX, and
#   converted to ONNX and run by ONNX Runtime.
# Behaviour: ONNX has no op for log1p and expm1; they become log(1 + x) and exp(x) - 1, which lose
#   what they are there for. jax.nn.one_hot of -1 is zeros, but ONNX's OneHot counts from the end.
#   lax.round takes halves away from zero, ONNX's Round to even. lax.dynamic_slice moves to where
#   it has all its elements, the converted one returns fewer, with another shape than declared,
#   which ONNX Runtime logs. Nothing else warns. lax.div and the rest of what was asked is right.
# It exits with 0 if it sees the lines at its end, and with 1 if jax2onnx or ONNX
# Runtime behave differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  jax2onnx==0.17.1 onnxruntime==1.32.0 onnx==1.23.2 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import jax
import jax2onnx
import numpy as np
import onnxruntime
from jax import lax

small = np.array([1e-8, 1.0], np.float32)
halves = np.array([-2.5, -0.5, 0.5, 1.5], np.float32)
PROGRAMS = {
    "log1p": (jax.numpy.log1p, small),
    "expm1": (jax.numpy.expm1, small),
    "one_hot": (lambda i: jax.nn.one_hot(i, 3), np.array([-1, 0], np.int32)),
    "lax.round": (lax.round, halves),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i,), (3,)), halves, np.int32(3)),
    "lax.div": (lax.div, np.array([-7, 7], np.int32), np.array([2, -2], np.int32)),
}
for name, (program, *inputs) in PROGRAMS.items():
    specs = [jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in inputs]
    session = onnxruntime.InferenceSession(jax2onnx.to_onnx(program, specs).SerializeToString())
    names = [argument.name for argument in session.get_inputs()]
    converted = session.run(None, dict(zip(names, map(np.asarray, inputs))))[0]
    for way, seen in (("JAX", np.asarray(jax.jit(program)(*inputs))), ("ONNX", converted)):
        print(name, way, np.vectorize(lambda x: float(f"{x:.4g}"))(seen).tolist())
END
export JAX_PLATFORMS=cpu
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
log1p JAX [1e-08, 0.6931]
log1p ONNX [0.0, 0.6931]
expm1 JAX [1e-08, 1.718]
expm1 ONNX [0.0, 1.718]
one_hot JAX [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
one_hot ONNX [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
lax.round JAX [-3.0, -1.0, 1.0, 2.0]
lax.round ONNX [-2.0, -0.0, 0.0, 2.0]
dynamic_slice JAX [-0.5, 0.5, 1.5]
dynamic_slice ONNX [1.5]
lax.div JAX [-3.0, -3.0]
lax.div ONNX [-3.0, -3.0]
END

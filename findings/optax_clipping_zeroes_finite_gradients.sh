#!/usr/bin/env bash
# optax's clipping by norm turns finite gradients into zeros: training stops, and nothing says so.
#
# Versions: optax 0.2.8, jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: float16 gradients of eight times 100, whose norm, 283, float16 can hold; and float32
#   gradients of eight times 1e20, whose norm float32 can hold.
# Behaviour: the squares are summed in the dtype of the gradients, so the norm is infinite, and
#   gradient / norm is 0. optax.clip_by_global_norm(1.0) and optax.normalize_by_update_norm() return
#   zeros where they should return 0.35. optax.clip_by_block_rms(1.0) does so in float32, and is
#   right in float16, as its mean is summed in float32. optax.apply_if_finite counts no failure:
#   gradients and updates are finite. With bfloat16, whose range is float32's, 100 is clipped well.
# It exits with 0 if it sees the lines at its end, and with 1 if optax behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  optax==0.2.8 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import jax.numpy as jnp
import optax

GRADIENTS = (jnp.full(8, 100.0, jnp.float16), jnp.full(8, 100.0, jnp.bfloat16), jnp.full(8, 1e20))
CLIPPINGS = {
    "clip_by_global_norm": optax.clip_by_global_norm(1.0),
    "clip_by_block_rms": optax.clip_by_block_rms(1.0),
    "normalize_by_update_norm": optax.normalize_by_update_norm(),
    "apply_if_finite": optax.apply_if_finite(optax.clip_by_global_norm(1.0), 5),
}
for gradient in GRADIENTS:
    print(gradient.dtype, "norm", f"{float(optax.tree.norm(gradient)):.3g}")
    for name, clipping in CLIPPINGS.items():
        update, state = clipping.update(gradient, clipping.init(gradient))
        failed = [int(state.total_notfinite)] if name == "apply_if_finite" else []
        print(" ", name, f"{float(update[0]):.2f}", *failed)
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
float16 norm inf
  clip_by_global_norm 0.00
  clip_by_block_rms 1.00
  normalize_by_update_norm 0.00
  apply_if_finite 0.00 0
bfloat16 norm 282
  clip_by_global_norm 0.36
  clip_by_block_rms 1.00
  normalize_by_update_norm 0.36
  apply_if_finite 0.36 0
float32 norm inf
  clip_by_global_norm 0.00
  clip_by_block_rms 0.00
  normalize_by_update_norm 0.00
  apply_if_finite 0.00 0
END

"""Draws the README's picture: what `hostcall.explain` shows of a partitioned function.

`python -m docs.pictures.explained` writes it again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

FILE = Path(__file__).with_name("explained.svg")

_MARGIN = 8

# The picture names this file, and the lines in it.
_MODEL = """\
def median(x):
    return np.median(x, axis=0)


@tf.function(jit_compile=True)
def spread(x, weights):
    hidden = tf.nn.relu(tf.matmul(x, weights))
    center = tf.numpy_function(median, [hidden], tf.float32)
    return tf.reduce_mean(tf.exp(hidden - center))
"""


def draw() -> str:
    """Return the picture as a file of its own, with a white ground."""
    model: dict[str, Any] = {"np": np, "tf": tf}
    exec(compile(_MODEL, "model.py", "exec"), model)
    explanation = hostcall.explain(
        model["spread"], tf.TensorSpec([4096, 512]), tf.TensorSpec([512, 256])
    )
    page = explanation.to_html()
    style = re.findall("<style>(.*?)</style>", page, re.DOTALL)[0]
    (picture,) = re.findall("<svg.*?</svg>", page, re.DOTALL)
    # Without the numbers of pictures, and of functions traced, in this process.
    picture = re.sub(r"hostcall-arrow-\d+", "hostcall-arrow", picture)
    picture = re.sub(r"\w*(spread)_\d+__partitioned", r"\1", picture)
    width, height = (
        int(re.findall(f'{side}="(\\d+)"', picture)[0]) + 2 * _MARGIN
        for side in ("width", "height")
    )
    size = f'width="{width}" height="{height}"'
    style = f"<style>{style}.hostcall {{ padding: 0 }}</style>"
    ground = '<rect width="100%" height="100%" style="fill:#fff"/>'
    picture = f'<svg x="{_MARGIN}" y="{_MARGIN}">{picture}</svg>'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="hostcall" {size}>'
    return f"{start}{style}{ground}{picture}</svg>\n"


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")

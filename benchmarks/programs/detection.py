"""Programs that find objects in images."""

from typing import Any

import numpy as np
import scipy.ndimage
import scipy.optimize
import tensorflow as tf

from benchmarks.programs.program import Decorator, Function, Program, corners, draws
from benchmarks.steps import Array

IMAGES, QUERIES, TARGETS, CLASSES = 4, 100, 12, 20


def overlaps(boxes: Array, others: Array) -> Array:
    """Return the intersection over union of each box with each other one."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    both = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(b[:, 2:] - b[:, :2], axis=-1) for b in (boxes, others)]
    overlap: Array = both / (areas[0][:, None] + areas[1][None, :] - both)
    return overlap


def matched(cost: Array) -> Array:
    targets = np.full(cost.shape[:2], -1, np.int32)
    for image, costs in enumerate(cost):
        rows, columns = scipy.optimize.linear_sum_assignment(costs)
        targets[image, rows] = columns
    return targets


def matcher(part: Decorator) -> Function:
    """Build the loss of DETR, whose targets are matched by SciPy, and its gradient."""

    @part
    def costs(logits: Any, boxes: Any, labels: Any, true_boxes: Any) -> Any:
        distance = tf.reduce_sum(tf.abs(boxes[:, :, None] - true_boxes[:, None]), axis=-1)
        chance = tf.gather(tf.nn.softmax(logits), labels, axis=2, batch_dims=1)
        return 0.01 * distance - chance

    @part
    def losses(logits: Any, boxes: Any, labels: Any, true_boxes: Any, target: Any) -> Any:
        found, target = target >= 0, tf.maximum(target, 0)
        label = tf.where(found, tf.gather(labels, target, batch_dims=1), 0)
        by_class = tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
        off = tf.abs(boxes - tf.gather(true_boxes, target, batch_dims=1))
        off = tf.where(found[:, :, None], off, 0.0)
        return tf.reduce_mean(by_class) + 0.001 * tf.reduce_mean(off)

    def step(logits: Any, boxes: Any, labels: Any, true_boxes: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([logits, boxes])
            cost = tf.stop_gradient(costs(logits, boxes, labels, true_boxes))
            target = tf.numpy_function(matched, [cost], tf.int32)
            target.set_shape([IMAGES, QUERIES])
            loss = losses(logits, boxes, labels, true_boxes, target)
        return loss, *tape.gradient(loss, [logits, boxes])

    return step


def kept_softly(boxes: Array, scores: Array) -> Array:
    """Return the indices of the boxes that soft-NMS keeps, best first."""
    scores, overlap = scores.copy(), overlaps(boxes, boxes)
    kept: list[int] = []
    while len(kept) < 50 and scores.max() > 0.05:
        best = int(np.argmax(scores))
        kept.append(best)
        scores *= np.exp(-(overlap[best] ** 2) / 0.5)
        scores[best] = 0.0
    return np.array(kept, np.int32)


def soft_nms(part: Decorator) -> Function:
    """Build a head whose boxes soft-NMS chooses; how many remain, only the run knows."""

    @part
    def decoded(anchors: Any, deltas: Any, logits: Any) -> Any:
        size = anchors[:, 2:] - anchors[:, :2]
        center = anchors[:, :2] + 0.5 * size + deltas[:, :2] * size
        half = 0.5 * size * tf.exp(0.1 * deltas[:, 2:])
        return tf.concat([center - half, center + half], axis=1), tf.sigmoid(logits)

    @part
    def summary(boxes: Any, scores: Any) -> Any:
        area = tf.reduce_prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        return tf.reduce_sum(area * scores) / tf.reduce_sum(scores)

    def step(anchors: Any, deltas: Any, logits: Any) -> Any:
        boxes, scores = decoded(anchors, deltas, logits)
        kept = tf.numpy_function(kept_softly, [boxes, scores], tf.int32)
        kept.set_shape([None])
        chosen, score = tf.gather(boxes, kept), tf.gather(scores, kept)
        return chosen, score, summary(chosen, score)

    return step


def targets_of(anchors: Array, boxes: Array) -> tuple[Array, Array]:
    labels = np.full([len(boxes), len(anchors)], -1, np.int32)
    wanted = np.zeros([*labels.shape, 4], np.float32)
    for image, true in enumerate(boxes):
        overlap = overlaps(anchors, true)
        labels[image, overlap.max(axis=1) < 0.3] = 0
        labels[image, overlap.max(axis=1) >= 0.5] = 1
        labels[image, overlap.argmax(axis=0)] = 1
        wanted[image] = true[overlap.argmax(axis=1)]
    return labels, wanted


def detector(part: Decorator) -> Function:
    """Build the losses of Faster R-CNN, whose targets NumPy finds, and their gradients."""

    @part
    def losses(scores: Any, found: Any, labels: Any, wanted: Any) -> Any:
        counted = tf.cast(labels >= 0, tf.float32)
        by_score = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels == 1, tf.float32), scores)
        off = tf.where(labels == 1, tf.reduce_sum(tf.abs(found - wanted), axis=-1), 0.0)
        return tf.reduce_sum(counted * by_score) / tf.reduce_sum(counted) + tf.reduce_mean(off)

    def step(scores: Any, found: Any, anchors: Any, boxes: Any) -> Any:
        labels, wanted = tf.numpy_function(targets_of, [anchors, boxes], [tf.int32, tf.float32])
        labels.set_shape(scores.shape)
        wanted.set_shape(found.shape)
        with tf.GradientTape() as tape:
            tape.watch([scores, found])
            loss = losses(scores, found, labels, wanted)
        return loss, *tape.gradient(loss, [scores, found])

    return step


def best_boxes(part: Decorator) -> Function:
    """Build a head that crops the boxes which TensorFlow's own non-max suppression keeps."""

    @part
    def features(image: Any) -> Any:
        return tf.nn.relu(tf.nn.avg_pool2d(image, 4, 4, "SAME") - 0.1)

    def step(image: Any, boxes: Any, scores: Any) -> Any:
        kept = tf.image.non_max_suppression(boxes, scores, 20, iou_threshold=0.3)
        tf.print("kept", tf.size(kept), output_stream="file:///dev/null")
        chosen = tf.gather(boxes, kept) / 512.0
        crops = tf.image.crop_and_resize(features(image), chosen, tf.zeros_like(kept), [7, 7])
        return tf.reduce_mean(crops, axis=[1, 2])

    return step


def distances(masks: Array) -> Array:
    return np.stack([scipy.ndimage.distance_transform_edt(mask) for mask in masks]).astype("f4")


def boundary_loss(part: Decorator) -> Function:
    """Build a boundary loss, by the distance transform of SciPy, and its gradient."""

    @part
    def loss_of(logits: Any, distance: Any) -> Any:
        return tf.reduce_mean(tf.sigmoid(logits) * distance) + tf.reduce_mean(
            tf.nn.softplus(logits)
        )

    def step(logits: Any, masks: Any) -> Any:
        distance = tf.numpy_function(distances, [masks], tf.float32, stateful=False)
        distance.set_shape(masks.shape)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = loss_of(logits, distance)
        return loss, tape.gradient(loss, logits)

    return step


def pictures(part: Decorator) -> Function:
    """Build the input of a classifier: PNG files, decoded by TensorFlow, and normalized."""

    @part
    def normalized(images: Any) -> Any:
        images = tf.cast(images, tf.float32) / 255.0
        mean, variance = tf.nn.moments(images, axes=[1, 2], keepdims=True)
        return (images - mean) * tf.math.rsqrt(variance + 1e-3)

    def step(files: Any) -> Any:
        images = [tf.ensure_shape(tf.io.decode_png(file, 3), [64, 64, 3]) for file in files]
        return normalized(tf.stack(images))

    return lambda files: step(tf.unstack(files, num=8))


def _files() -> tf.Tensor:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, [8, 64, 64, 3], np.uint8)
    return tf.stack([tf.io.encode_png(one) for one in pixels])


def programs() -> list[Program]:
    labels = tf.constant(np.random.default_rng(0).integers(0, CLASSES, [IMAGES, TARGETS]), tf.int32)
    masks = tf.cast(draws(8, 64, 64) > 0, tf.float32)
    return [
        Program(
            "DETR's matcher, with gradients",
            matcher,
            (
                draws(IMAGES, QUERIES, CLASSES),
                corners(IMAGES, QUERIES),
                labels,
                corners(IMAGES, TARGETS, seed=1),
            ),
        ),
        Program("soft-NMS of 200 boxes", soft_nms, (corners(200), draws(200, 4), draws(200))),
        Program(
            "Faster R-CNN's targets, with gradients",
            detector,
            (draws(2, 500), draws(2, 500, 4), corners(500), corners(2, 6, seed=1)),
        ),
        Program(
            "crops of the boxes of non-max suppression",
            best_boxes,
            (draws(1, 128, 128, 16), corners(300), draws(300)),
        ),
        Program("a boundary loss, with gradient", boundary_loss, (draws(8, 64, 64), masks)),
        Program("8 PNG files, decoded and normalized", pictures, (_files(),)),
    ]

"""Cases of ops on images and sounds."""

from typing import Any

import tensorflow as tf

from tests.support.e2e.every_op import cases, gradient_cases, raw_case
from tests.support.e2e.every_op import ints as _ints

_BOXES = tf.constant(
    [[0.0, 0.0, 0.6, 0.6], [0.1, 0.1, 0.7, 0.6], [0.5, 0.5, 1.0, 1.0], [0.0, 0.5, 0.4, 1.0]]
)


def image(x: tf.Tensor) -> tf.Tensor:
    """A batch of one image of 4 by 4 floats."""
    return tf.reshape(tf.range(16.0), [1, 4, 4, 1]) * x[0] + x[1]


def _pixels(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.tile(image(x)[0], [1, 1, 3]) * 4.0, tf.uint8)


cases(
    ResizeArea=lambda x: tf.image.resize(image(x), [3, 2], "area") * 2.0,
    ExtractGlimpseV2=lambda x: tf.image.extract_glimpse(image(x), [2, 2], x[None, :2] * 0.1) + 1.0,
    DrawBoundingBoxesV2=lambda x: tf.image.draw_bounding_boxes(image(x), _BOXES[None], [[1.0]]),
    NonMaxSuppressionV5=lambda x: tf.image.non_max_suppression_with_scores(
        _BOXES, x, 3, soft_nms_sigma=0.5
    ),
    NonMaxSuppressionWithOverlaps=lambda x: tf.image.non_max_suppression_overlaps(tf.eye(4), x, 3),
    CombinedNonMaxSuppression=lambda x: tf.image.combined_non_max_suppression(
        _BOXES[None, :, None], x[None, :, None], 2, 3
    ),
    SampleDistortedBoundingBoxV2=lambda x: tf.image.sample_distorted_bounding_box(
        [4, 4, 3], _BOXES[None] * x[0] * 0.2, seed=3
    ),
    StatelessSampleDistortedBoundingBox=lambda x: tf.image.stateless_sample_distorted_bounding_box(
        [4, 4, 3], _BOXES[None] * x[0] * 0.2, seed=[1, 2]
    ),
    EncodePng=lambda x: tf.io.encode_png(_pixels(x)),
    EncodeJpeg=lambda x: tf.io.encode_jpeg(_pixels(x)),
    DecodePng=lambda x: tf.cast(tf.io.decode_png(tf.io.encode_png(_pixels(x))), tf.int32) + 1,
    DecodeJpeg=lambda x: tf.io.decode_jpeg(
        tf.io.encode_jpeg(_pixels(x)), dct_method="INTEGER_ACCURATE"
    ),
    DecodeImage=lambda x: tf.io.decode_image(tf.io.encode_png(_pixels(x)), dtype=tf.float32),
    DecodeAndCropJpeg=lambda x: tf.io.decode_and_crop_jpeg(
        tf.io.encode_jpeg(_pixels(x)), [1, 1, 2, 3]
    ),
    ExtractJpegShape=lambda x: tf.io.extract_jpeg_shape(tf.io.encode_jpeg(_pixels(x))) * 2,
)
gradient_cases(
    ResizeBicubic=lambda x: tf.image.resize(image(x), [3, 2], "bicubic", antialias=False),
    ScaleAndTranslate=lambda x: tf.image.resize(image(x), [3, 2], "lanczos3"),
    CropAndResize=lambda x: tf.image.crop_and_resize(image(x), _BOXES, [0] * 4, [2, 2]),
)
_MOVED: dict[str, Any] = {
    "images": image,
    "transforms": [[1.0, 0.1, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0]],
    "output_shape": [4, 4],
}
raw_case("ImageProjectiveTransformV2", gradient=True, interpolation="NEAREST", **_MOVED)
raw_case(
    "ImageProjectiveTransformV3", gradient=True, fill_value=0.0, interpolation="BILINEAR", **_MOVED
)
_SCORED: dict[str, Any] = {"boxes": _BOXES, "scores": lambda x: x, "max_output_size": 3}
raw_case("NonMaxSuppression", **_SCORED)
raw_case("NonMaxSuppressionV2", iou_threshold=0.4, **_SCORED)
raw_case("EncodeJpegVariableQuality", images=_pixels, quality=lambda x: _ints(x * 20.0)[0])


def _bmp(x: tf.Tensor) -> tf.Tensor:
    """A picture of 1 by 1 in 24 bits; the vector makes its colour."""
    head = bytes.fromhex(
        "424d3a0000000000000036000000280000000100000001000000010018000000000004000000"
        "00000000000000000000000000000000"
    )
    return tf.strings.join([head, tf.strings.substr(tf.strings.as_string(x[0] + 100.0), 0, 4)])


def _gif(x: tf.Tensor) -> tf.Tensor:
    """A picture of 1 by 1, whose background the vector makes."""
    head = bytes.fromhex("47494638396101000100800000")
    rest = bytes.fromhex("ffffff2c00000000010001000002024401003b")
    return tf.strings.join(
        [head, tf.strings.substr(tf.strings.as_string(x[0] + 100.0), 0, 3), rest]
    )


cases(DecodeBmp=lambda x: tf.io.decode_bmp(_bmp(x)), DecodeGif=lambda x: tf.io.decode_gif(_gif(x)))


def _sound(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(tf.range(32.0) * x[1])[:, None]


def _spectrogram(x: tf.Tensor) -> Any:
    return tf.raw_ops.AudioSpectrogram(input=_sound(x), window_size=8, stride=4)


cases(
    AudioSpectrogram=lambda x: _spectrogram(x) * 2.0,
    EncodeWav=lambda x: tf.audio.encode_wav(_sound(x), 16000),
    DecodeWav=lambda x: tf.audio.decode_wav(tf.audio.encode_wav(_sound(x), 16000)),
)
raw_case("Mfcc", spectrogram=_spectrogram, sample_rate=16000, dct_coefficient_count=4)

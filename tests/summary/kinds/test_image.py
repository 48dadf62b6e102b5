import io

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from tensorboard.compat.proto import summary_pb2
from tensorboard.util.tensor_util import make_ndarray

from runhooks.summary import Summary, image_value, picture_value
from runhooks.summary.media import encode_png
from tests.summary.conftest import Late

rng = np.random.default_rng(0)


def written(images: object, max_outputs: int = 3) -> dict[str, np.ndarray]:
    message = Summary([image_value("digits", images, max_outputs)]).SerializeToString()
    pixels = {}
    for value in summary_pb2.Summary.FromString(message).value:
        image = np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string)))
        image = image if image.ndim == 3 else image[:, :, None]
        assert image.shape == (value.image.height, value.image.width, value.image.colorspace)
        pixels[value.tag] = image
    return pixels


def only(pixels: list[float], dtype: type = np.float32) -> list[int]:
    image = np.array(pixels, dtype).reshape(1, 1, -1, 1)
    return written(image, 1)["digits/image"].ravel().tolist()


def test_bytes_are_written_as_they_are() -> None:
    for channels in (1, 3, 4):
        images = rng.integers(0, 256, (2, 5, 7, channels), np.uint8)
        pixels = written(images)
        assert list(pixels) == ["digits/image/0", "digits/image/1"]
        assert np.array_equal(pixels["digits/image/1"], images[1])


def test_max_outputs_are_written() -> None:
    images = np.zeros((5, 2, 2, 1), np.uint8)
    assert list(written(images)) == [f"digits/image/{index}" for index in range(3)]
    assert list(written(images, 1)) == ["digits/image"]
    assert len(written(images, 9)) == 5
    assert written(images[:0]) == {}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, jnp.bfloat16])
def test_floats_without_negatives_fill_the_range(dtype: type) -> None:
    assert only([0.0, 1.0, 2.0], dtype) == [0, 127, 255]
    assert only([0.0, 0.0], dtype) == [0, 0]


def test_tiny_and_huge_floats_fill_the_range_too() -> None:
    assert only([0.0, 2e-6]) == [0, 255]
    assert only([0.0, 3e-6], np.float16) == [0, 255]
    assert only([0.0, 3e38, -3e38]) == [128, 255, 1]


def test_floats_are_scaled_as_tensorflow_does() -> None:
    # What tf.compat.v1.summary.image of TensorFlow 2.21 made of the same numbers.
    assert only([0.3, 0.6, 1.0]) == [76, 153, 255]
    assert only([1.0, 2.0, 3.0, 7.0, 11.0, 0.1]) == [23, 46, 69, 162, 255, 2]
    assert only([1.0, 2.0, 3.0, 7.0, 11.0, 0.1], np.float64) == [23, 46, 69, 162, 254, 2]
    assert only([0.0, 1e300], np.float64) == [0, 0]
    assert only([-1.0, 0.0, 0.5]) == [1, 128, 191]
    assert only([0.0, 9e-7, -9e-7]) == [128, 128, 128]
    images = np.array([1.0, 128.0]).reshape(2, 1, 1, 1)  # each by itself
    assert [image.item() for image in written(images).values()] == [255, 255]


def test_a_pixel_that_is_not_finite_can_be_seen() -> None:
    assert only([np.nan, 0.0, np.inf, 1.0]) == [255, 0, 255, 255]
    # The other channels of such a pixel do not count.
    image = np.array([[1000.0, np.nan, -1.0], [1.0, 0.0, 0.5]]).reshape(1, 1, 2, 3)
    assert written(image, 1)["digits/image"].tolist() == [[[255, 0, 0], [255, 0, 127]]]
    assert only([np.nan]) == [255]


def test_other_shapes_and_integers_are_refused(writer) -> None:
    for shape in ((4, 4), (4, 4, 3), (1, 4, 4, 5), (1, 0, 4, 3), (1, 1, 4, 4, 3)):
        with pytest.raises(ValueError, match=r"'digits' must have the shape") as raised:
            written(np.zeros(shape))
        assert str(list(shape)) in str(raised.value)
    for dtype in (np.int64, np.bool_, np.uint16):
        with pytest.raises(TypeError, match=f"'digits'.*{np.dtype(dtype)}"):
            written(np.zeros((1, 2, 2, 1), dtype))
    with pytest.raises(ValueError, match="max_outputs"):
        image_value("digits", np.zeros((1, 2, 2, 1)), 0)
    with pytest.raises(TypeError, match="'digit' must be uint8 .* int64"):
        writer.image("digit", np.zeros((2, 2), np.int64), 1)
    with pytest.raises(ValueError, match="axes of .*'digit'.*'WHA'"):
        picture_value("digit", np.zeros((2, 2, 2)), "WHA")


def shown(png: bytes) -> np.ndarray:
    image = np.asarray(Image.open(io.BytesIO(png)))
    return image if image.ndim == 3 else image[:, :, None]


@pytest.fixture
def pixels(writer):
    """What is shown of an image, ``[height, width, channels]``."""

    def pixels(image: object, data_format: str | None = None) -> np.ndarray:
        writer.image("digit", image, 1, data_format)
        value = writer.values[-1]
        array = shown(value.image.encoded_image_string)
        assert value.tag == "digit"
        assert array.shape == (value.image.height, value.image.width, value.image.colorspace)
        return array

    return pixels


def test_bytes_are_shown_as_they_are(pixels) -> None:
    for channels in (1, 2, 3, 4):
        image = rng.integers(0, 256, (5, 7, channels), np.uint8)
        assert np.array_equal(pixels(image), image)
        assert np.array_equal(pixels(image.transpose(2, 0, 1), "CHW"), image)
        assert np.array_equal(pixels(image[..., 0]), image[..., :1])
    assert pixels(np.array([[True, False]])).ravel().tolist() == [255, 0]


def test_floats_are_brightness(pixels) -> None:
    image = rng.integers(0, 256, (5, 7, 3), np.uint8)
    for dtype in (np.float32, np.float64):
        assert np.array_equal(pixels(image.astype(dtype) / 255), image)
    assert pixels(np.array([[-0.1, 0.0, 0.5, 1.0, 7.0]])).ravel().tolist() == [0, 0, 128, 255, 255]
    assert pixels(np.array([[0.0, 0.25, 1.0]], np.float16)).ravel().tolist() == [0, 64, 255]


def test_a_pixel_that_is_not_finite_can_be_seen_of_a_picture(
    pixels, caplog: pytest.LogCaptureFixture
) -> None:
    image = np.array([[[0.0, np.nan, 1.0], [np.inf, 0.0, 0.0], [0.2, 0.4, 0.6]]])
    for _ in range(2):
        assert pixels(image).tolist() == [[[255, 0, 0], [255, 0, 0], [51, 102, 153]]]
    assert pixels(image[..., 0]).ravel().tolist() == [0, 255, 51]
    assert [record.getMessage() for record in caplog.records] == [
        "image 'digit' has 1 NaN and 1 infinite values, shown red (said once for a tag)"
    ]


@pytest.mark.parametrize(
    ("data_format", "axes"), [("NHWC", (0, 1, 2, 3)), ("NCHW", (0, 3, 1, 2)), (None, (0, 1, 2, 3))]
)
def test_a_batch_is_that_of_tf_summary(
    writer, tensorflows_writer, data_format: str | None, axes: tuple[int, ...]
) -> None:
    images = rng.integers(0, 256, (4, 5, 7, 3), np.uint8)
    writer.image("digits", images.transpose(axes), 1, data_format)
    theirs = tensorflows_writer(lambda: tf.summary.image("digits", images, max_outputs=4))
    assert (writer.value.tag, writer.value.metadata) == (theirs.tag, theirs.metadata)
    ours, expected = make_ndarray(writer.value.tensor), make_ndarray(theirs.tensor)
    assert ours[:2].tolist() == expected[:2].tolist() == [b"7", b"5"]
    for png, image in zip(ours[2:], images, strict=True):
        assert np.array_equal(shown(png), image)


@pytest.mark.parametrize(
    ("shape", "data_format"),
    [((4,), None), ((5, 3, 8, 9), None), ((0, 4), None), ((3, 4, 5), "HWC"), ((4, 4), "CHW")],
)
def test_another_shape_is_refused_of_a_picture(
    writer, shape: tuple[int, ...], data_format: str | None
) -> None:
    with pytest.raises(ValueError, match="'digit' must have the shape") as raised:
        writer.image("digit", np.zeros(shape), 1, data_format)
    assert str(list(shape)) in str(raised.value)
    writer.image("digit", Late(np.zeros(shape)), 1, data_format)
    with pytest.raises(ValueError, match="'digit' must have the shape"):
        _ = writer.values


def test_brightness_beyond_the_range_is_told_once(writer, caplog) -> None:
    for step in range(2):
        writer.image("bright", np.array([[-1.0, 0.5], [np.nan, 255.0]]), step)
    writer.image("rounded", np.array([[-1e-6, 1.001]]), 1)
    assert len(writer.values) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "image 'bright' has 1 NaN and 0 infinite values, shown red (said once for a tag)",
        "image 'bright' has values from -1 to 255, beyond 0.0 to 1.0: cut off; convert 0 to 255 "
        "to uint8 (said once for a tag)",
    ]


shapes = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))


@settings(deadline=None)
@given(hnp.arrays(np.uint8, shapes))
def test_pillow_decodes_the_very_pixels(image: np.ndarray) -> None:
    assert np.array_equal(shown(encode_png(image)), image)


def test_any_memory_layout_will_do() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    for view in (image[::-1, ::2], image.transpose(1, 0, 2), np.asfortranarray(image)):
        assert np.array_equal(shown(encode_png(view)), view)

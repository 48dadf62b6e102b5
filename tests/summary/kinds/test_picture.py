import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.util.tensor_util import make_ndarray

from runhooks.summary import picture_value

rng = np.random.default_rng(0)


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


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_bytes_are_shown_as_they_are(pixels, channels: int) -> None:
    image = rng.integers(0, 256, (5, 7, channels), np.uint8)
    assert np.array_equal(pixels(image), image)
    assert np.array_equal(pixels(image.transpose(2, 0, 1), "CHW"), image)
    assert np.array_equal(pixels(image[..., 0]), image[..., :1])


def test_floats_are_brightness(pixels) -> None:
    image = rng.integers(0, 256, (5, 7, 3), np.uint8)
    for dtype in (np.float32, np.float64):
        assert np.array_equal(pixels(image.astype(dtype) / 255), image)
    assert pixels(np.array([[-0.1, 0.0, 0.5, 1.0, 7.0]])).ravel().tolist() == [0, 0, 128, 255, 255]
    assert pixels(np.array([[0.0, 0.25, 1.0]], np.float16)).ravel().tolist() == [0, 64, 255]


def test_bools_are_black_and_white(pixels) -> None:
    assert pixels(np.array([[True, False]])).ravel().tolist() == [255, 0]


def test_a_pixel_that_is_not_finite_can_be_seen(pixels, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_batch_of_gray_images(writer) -> None:
    images = rng.integers(0, 256, (2, 5, 7), np.uint8)
    writer.image("digits", images, 1, "NHW")
    strings = make_ndarray(writer.value.tensor)
    assert [shown(png)[:, :, 0].tolist() for png in strings[2:]] == images.tolist()


@pytest.mark.parametrize(
    ("shape", "data_format"),
    [((4,), None), ((4, 4, 2), None), ((0, 4), None), ((3, 4, 5), "HWC"), ((4, 4), "CHW")],
)
def test_another_shape_is_refused(writer, shape: tuple[int, ...], data_format: str | None) -> None:
    writer.image("digit", np.zeros(shape), 1, data_format)
    with pytest.raises(ValueError, match=r"'digit' must have the shape .*, got \[") as raised:
        _ = writer.values
    assert str(list(shape)) in str(raised.value)


@pytest.mark.parametrize("shape", [(3, 8, 9), (5, 3, 8, 9)])
def test_channels_in_another_place_are_told_how_to_be_written(writer, shape) -> None:
    writer.image("digit", np.zeros(shape), 1)
    with pytest.raises(ValueError, match="data_format says what its axes are, such as 'CHW'"):
        _ = writer.values


def test_brightness_beyond_the_range_is_told_once(writer, caplog) -> None:
    for step in range(2):
        writer.image("bright", np.array([[-1.0, 0.5], [np.nan, 255.0]]), step)
    writer.image("rounded", np.array([[-1e-6, 1.001]]), 1)
    assert len(writer.values) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "image 'bright' has 1 NaN and 0 infinite values, shown red (said once for a tag)",
        "image 'bright' has values from -1 to 255, beyond 0.0 to 1.0: cut off "
        "(said once for a tag)",
    ]


def test_other_integers_are_refused(writer) -> None:
    writer.image("digit", np.zeros((2, 2), np.int64), 1)
    with pytest.raises(TypeError, match="'digit' must be uint8 .*, got int64: convert it"):
        _ = writer.values


def test_another_format_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'digit' must be one of HW, .*, NCHW, got 'WHC'"):
        picture_value("digit", np.zeros((2, 2)), "WHC")

import io

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from tensorboard.compat.proto import summary_pb2

from runhooks.summary import Summary, image_value

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


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_bytes_are_written_as_they_are(channels: int) -> None:
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


def test_noise_around_zero_is_not_scaled_up() -> None:
    assert only([0.0, 9e-7]) == [0, 0]
    assert only([0.0, 9e-7, -9e-7]) == [128, 128, 128]


def test_floats_are_scaled_as_tensorflow_does() -> None:
    # What tf.compat.v1.summary.image of TensorFlow 2.21 made of the same numbers.
    assert only([0.3, 0.6, 1.0]) == [76, 153, 255]
    assert only([1.0, 2.0, 3.0, 7.0, 11.0, 0.1]) == [23, 46, 69, 162, 255, 2]
    assert only([1.0, 2.0, 3.0, 7.0, 11.0, 0.1], np.float64) == [23, 46, 69, 162, 254, 2]
    assert only([0.0, 1e300], np.float64) == [0, 0]


def test_floats_with_negatives_have_zero_in_the_middle() -> None:
    assert only([-1.0, 0.0, 0.5]) == [1, 128, 191]
    assert only([-0.5, 0.0, 1.0]) == [64, 128, 255]


def test_each_image_is_normalised_by_itself() -> None:
    images = np.array([1.0, 128.0]).reshape(2, 1, 1, 1)
    assert [image.item() for image in written(images).values()] == [255, 255]


def test_a_pixel_that_is_not_finite_can_be_seen() -> None:
    assert only([np.nan, 0.0, np.inf, 1.0]) == [255, 0, 255, 255]
    # The other channels of such a pixel do not count.
    image = np.array([[1000.0, np.nan, -1.0], [1.0, 0.0, 0.5]]).reshape(1, 1, 2, 3)
    assert written(image, 1)["digits/image"].tolist() == [[[255, 0, 0], [255, 0, 127]]]
    assert only([np.nan]) == [255]


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 3), (1, 4, 4, 2), (1, 0, 4, 3), (1, 1, 4, 4, 3)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"'digits' must have the shape \[N, .*, got \[") as raised:
        written(np.zeros(shape))
    assert str(list(shape)) in str(raised.value)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.uint16])
def test_other_integers_are_refused(dtype: type) -> None:
    with pytest.raises(TypeError, match=f"'digits' must be uint8 .* got {np.dtype(dtype)}"):
        written(np.zeros((1, 2, 2, 1), dtype))


def test_max_outputs_below_one_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="max_outputs must be above 0, got 0"):
        image_value("digits", np.zeros((1, 2, 2, 1)), 0)


def test_tensorboard_reads_it(accumulate) -> None:
    images = rng.integers(0, 256, (1, 6, 4, 3), np.uint8)
    (event,) = accumulate(image_value("digits", images, 1)).Images("digits/image")
    assert (event.step, event.height, event.width) == (7, 6, 4)
    pixels = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
    assert np.array_equal(pixels, images[0])

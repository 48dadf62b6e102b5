import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from sklearn.datasets import load_sample_image

from runhooks.summary.kinds.image import encode_png

shapes = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))


def decoded(png: bytes) -> np.ndarray:
    image = np.asarray(Image.open(io.BytesIO(png)))
    return image if image.ndim == 3 else image[:, :, None]


def pillows_size(image: np.ndarray) -> int:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return len(file.getvalue())


def drawing() -> np.ndarray:
    image = np.full((256, 256, 3), 255, np.uint8)
    image[::32] = image[:, ::32] = 200
    at = np.arange(256)
    image[(128 + 80 * np.sin(at / 20)).astype(int), at] = [200, 0, 0]
    return image


def smooth() -> np.ndarray:
    y, x = np.mgrid[:256, :256] / 40
    colors = np.stack([np.sin(x + y), np.cos(x * y / 4), np.sin(x)], axis=-1)
    noise = np.random.default_rng(0).normal(scale=0.02, size=colors.shape)
    return np.clip((colors + noise) * 60 + 128, 0, 255).astype(np.uint8)


@settings(deadline=None)
@given(hnp.arrays(np.uint8, shapes))
def test_pillow_decodes_the_very_pixels(image: np.ndarray) -> None:
    assert np.array_equal(decoded(encode_png(image)), image)


def test_any_memory_layout_will_do() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    for view in (image[::-1, ::2], image.transpose(1, 0, 2), np.asfortranarray(image)):
        assert np.array_equal(decoded(encode_png(view)), view)


@pytest.mark.parametrize(
    "image",
    [
        smooth(),
        load_sample_image("flower.jpg")[:256, 300:556],
        load_sample_image("china.jpg")[:256, 240:496],
        drawing(),
        np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8),
    ],
    ids=["smooth", "photograph", "rough photograph", "drawing", "noise"],
)
def test_files_are_about_as_small_as_pillows(image: np.ndarray) -> None:
    assert len(encode_png(image)) <= 1.13 * pillows_size(image)

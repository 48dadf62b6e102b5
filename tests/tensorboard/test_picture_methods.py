"""Images, figures, videos and sounds: ours beside torch's and tensorboardX's."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tensorflow as tf
import torch
from matplotlib import pyplot as plt
from PIL import ImageSequence

from runhooks.tensorboard import SummaryWriter
from tests.tensorboard.conftest import opened

RNG = np.random.default_rng(0)
SIZES = {"N": 5, "C": 3, "H": 4, "W": 6}


def picture(axes, dtype="float32", **sizes):
    shape = [(SIZES | sizes)[axis] for axis in axes.upper()]
    rng = np.random.default_rng(0)
    if dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.uniform(-0.2, 1.2, shape).astype(dtype)


@pytest.mark.parametrize(
    ("axes", "dtype"),
    [
        *(("CHW", "uint8"), ("HWC", "float32"), ("WHC", "float16"), ("HW", "uint8")),
        *(("wh", "float64"), ("NCHW", "float32"), ("NHWC", "uint8"), ("CHWN", "float64")),
    ],
)
def test_images_are_those_of_torch(axes, dtype, same_as_torch):
    image = picture(axes, dtype)

    def add(writer):
        writer.add_image("one", image, 1, dataformats=axes)
        writer.add_images("many", image, 2, dataformats=axes)
        writer.add_image("of torch", torch.from_numpy(image), 3, dataformats=axes)

    same_as_torch(add)


def test_other_colors_and_grids_are_those_of_torch(same_as_torch):
    def add(writer):
        for channels in (1, 2, 4):
            image = picture("HWC", "uint8", C=channels)
            writer.add_image(f"{channels} channels", image, 1, dataformats="HWC")
        for count in (1, 8, 9, 17):
            writer.add_images(f"grid of {count}", picture("NCHW", N=count, C=1), 1)
        writer.add_image("integers", np.arange(60).reshape(3, 4, 5) % 3, 1)
        writer.add_image("bools", np.arange(60).reshape(3, 4, 5) % 7 > 3, 1)

    same_as_torch(add)


def test_rgba_grids_and_lists_are_those_of_tensorboardx(same_as_tensorboardx):
    images = list(picture("NCHW", "uint8"))

    def add(writer):
        writer.add_images("rgba", picture("NCHW", "uint8", C=4), 1)
        writer.add_images("list", list(map(torch.from_numpy, images)), 1, dataformats="CHW")

    same_as_tensorboardx(add)


def image_in(events):
    return opened(events["."][0].summary.value[0].image)


def figure(color):
    made = plt.figure(figsize=(1.5, 1))
    made.gca().plot([0, 1], color=color)
    return made


def test_figures_are_those_of_torch(same_as_torch):
    def add(writer):
        writer.add_figure("one", figure("red"), 1)
        writer.add_figure("two", [figure("red"), figure("blue")], 1)

    same_as_torch(add)


@pytest.mark.parametrize("close", [True, False])
def test_figures_are_closed(close, tmp_path):
    drawn = [figure("red"), figure("blue")]
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("figures", drawn, close=close)
    assert [plt.fignum_exists(one.number) for one in drawn] == [not close] * 2
    plt.close("all")


@pytest.mark.parametrize("package", ["PIL", "matplotlib.pyplot", "torch"])
def test_what_is_not_installed_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "runhooks.engines.torch.engine", raising=False)
    add = {
        "PIL": lambda writer: writer.add_video("video", np.zeros((1, 1, 1, 2, 2))),
        "matplotlib.pyplot": lambda writer: writer.add_figure("figure", None),
        "torch": lambda writer: writer.add_graph(None),
    }[package]
    with SummaryWriter(tmp_path) as writer, pytest.raises(ImportError, match="pip install"):
        add(writer)


def frames_of(gif):
    for frame in ImageSequence.Iterator(gif):
        yield np.asarray(frame.convert("RGB"))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_videos_are_shown_side_by_side(dtype, ours):
    video = np.zeros((3, 2, 1, 4, 6), np.uint8)
    for number in range(3):
        video[number, 0], video[number, 1] = 10 * number + 5, 10 * number + 100
    given = video if dtype == "uint8" else video.astype(dtype) / 255
    events = ours(lambda writer: writer.add_video("video", given, 7, fps=10))
    image = events["."][0].summary.value[0].image
    assert (events["."][0].step, image.height, image.width, image.colorspace) == (7, 4, 24, 1)
    gif = image_in(events)
    assert gif.info["duration"] == 100
    expected = [np.concatenate([*video[:, at, 0], np.zeros((4, 6))], axis=1) for at in range(2)]
    assert [f[..., 0].tolist() for f in frames_of(gif)] == [e.tolist() for e in expected]


@pytest.mark.parametrize("colors", [1, 2, 200, 256])
def test_few_colors_of_videos_are_exact(colors, ours):
    rng = np.random.default_rng(0)
    palettes = rng.integers(0, 256, (3, colors, 3), np.uint8)
    frames = np.stack([palette[rng.integers(0, colors, (20, 30))] for palette in palettes])
    video = frames.transpose(0, 3, 1, 2)[None]
    shown = np.stack(list(frames_of(image_in(ours(lambda writer: writer.add_video("v", video))))))
    assert shown.tolist() == frames.tolist()


def test_colors_of_videos_are_near(ours):
    y, x = np.mgrid[0:16, 0:16] / 15
    video = np.stack([np.stack([x, y, np.full_like(x, at)]) for at in (0.2, 0.8)])[None]
    events = ours(lambda writer: writer.add_video("video", torch.from_numpy(video)))
    shown = np.stack(list(frames_of(image_in(events))))
    assert np.abs(shown / 255 - video[0].transpose(0, 2, 3, 1)).max() < 0.15


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_a_video_has_as_many_frames_as_it_was_given(count, ours):
    video = RNG.random((count, 3, 3, 2, 2))
    events = ours(
        lambda writer: writer.add_video("v", video.transpose(1, 0, 2, 3, 4), 1, 4, 2.5, "TNCHW")
    )
    assert image_in(events).n_frames == 3
    assert events["."][0].wall_time == 2.5


@pytest.mark.parametrize("shape", [(4000,), (1, 4000), (4000, 1)], ids=["frames", "row", "column"])
def test_sounds_are_those_of_torch(shape, same_as_torch, capsys):
    sound = (1.5 * np.sin(np.arange(4000) / 50)).reshape(shape)

    def add(writer):
        writer.add_audio("sound", sound, 1)
        writer.add_audio("slow", torch.from_numpy(sound).float(), 2, sample_rate=8000)

    same_as_torch(add)


@pytest.mark.parametrize("image", [np.full((3, 8, 8), 200), -RNG.random((3, 8, 8))])
def test_colors_out_of_range_are_cut_off_as_by_torch_with_one_warning(image, same_as_torch, caplog):
    tag = f"image {image.flat[0]} {image.dtype}"

    def add(writer):
        for step in range(3):
            writer.add_image(tag, image, step)
        writer.flush()

    same_as_torch(add)
    (said,) = [record.getMessage() for record in caplog.records if tag in record.getMessage()]
    assert "beyond 0.0 to 1.0: cut off; convert 0 to 255 to uint8" in said


def test_colors_in_range_need_no_warning(ours, caplog):
    ours(lambda writer: writer.add_image("in range", RNG.random((3, 8, 8)), 1))
    assert "in range" not in caplog.text


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("colors", [4, 256])
def test_equal_frames_of_a_video_stay(channels, colors, ours):
    different = RNG.integers(0, colors, (3, channels, 4, 4), np.uint8)
    video = different[[0, 0, 1, 1, 1, 0, 2, 2]]
    video[4, :, 1:3, 2] += 1  # only a part of the picture
    events = ours(lambda writer: writer.add_video("video", video[None], fps=4))
    gif = image_in(events)
    assert [frame.info["duration"] for frame in ImageSequence.Iterator(gif)] == [250] * 8
    (encoded,) = [value.image.encoded_image_string for value in events["."][0].summary.value]
    decoded = tf.io.decode_gif(encoded).numpy()
    expected = np.broadcast_to(video.transpose(0, 2, 3, 1), (8, 4, 4, 3))
    assert decoded.tolist() == expected.tolist()

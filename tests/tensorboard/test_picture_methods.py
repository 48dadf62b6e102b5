"""Images, figures, videos and sounds: ours beside torch's and tensorboardX's."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import tensorflow as tf
import torch
from matplotlib import pyplot as plt
from PIL import Image, ImageSequence

from runhooks.tensorboard import SummaryWriter

RNG = np.random.default_rng(0)
SIZES = {"N": 5, "C": 3, "H": 4, "W": 6}


def picture(axes, dtype="float32", **sizes):
    shape = [(SIZES | sizes)[axis] for axis in axes.upper()]
    rng = np.random.default_rng(0)
    if dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.uniform(-0.2, 1.2, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "float16"])
@pytest.mark.parametrize("axes", ["CHW", "HWC", "chw", "WHC", "HW", "WH", "NCHW", "NHWC", "CHWN"])
def test_images_are_those_of_torch(axes, dtype, same_as_torch):
    image = picture(axes, dtype)

    def add(writer):
        writer.add_image("one", image, 1, dataformats=axes)
        writer.add_images("many", image, 2, dataformats=axes)
        writer.add_image("of torch", torch.from_numpy(image), 3, dataformats=axes)

    same_as_torch(add)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_gray_and_transparent_images_are_those_of_torch(channels, same_as_torch):
    image = picture("HWC", "uint8", C=channels)
    same_as_torch(lambda writer: writer.add_image("image", image, 1, dataformats="HWC"))


@pytest.mark.parametrize("count", [1, 8, 9, 17])
def test_grids_are_those_of_torch(count, same_as_torch):
    same_as_torch(lambda writer: writer.add_images("grid", picture("NCHW", N=count, C=1), 1))


@pytest.mark.parametrize("image", [RNG.integers(0, 3, (3, 4, 5)), RNG.random((3, 4, 5)) > 0.5])
def test_integers_and_bools_are_those_of_torch(image, same_as_torch):
    same_as_torch(lambda writer: writer.add_image("image", image, 1))


def test_rgba_grids_and_lists_are_those_of_tensorboardx(same_as_tensorboardx):
    images = list(picture("NCHW", "uint8"))

    def add(writer):
        writer.add_images("rgba", picture("NCHW", "uint8", C=4), 1)
        writer.add_images("list", list(map(torch.from_numpy, images)), 1, dataformats="CHW")

    same_as_tensorboardx(add)


def test_bfloat16_images_are_shown(ours):
    image = torch.tensor([[0.0, 0.5], [1.0, 2.0]], dtype=torch.bfloat16)
    events = ours(lambda writer: writer.add_image("image", image, dataformats="HW"))
    assert decoded(events)[..., 0].tolist() == [[0, 127], [255, 255]]


def test_pixels_that_are_not_finite_are_red(ours):
    image = np.array([[0.5, np.nan], [np.inf, -1.0]])
    events = ours(lambda writer: writer.add_image("image", image, dataformats="HW"))
    red = [255, 0, 0]
    assert decoded(events).tolist() == [[[127] * 3, red], [red, [0, 0, 0]]]


def decoded(events):
    return np.asarray(opened(events))


def opened(events):
    return Image.open(io.BytesIO(events["."][0].summary.value[0].image.encoded_image_string))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 4), "CHW"), ((3, 4, 4), "NCHW"), ((3, 4, 4), "HHW"), ((5, 4, 4), "CHW"), ((2, 2), "AB")],
)
def test_other_axes_are_refused_as_by_torch(shape, axes, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(AssertionError, match="axes"):
            writer.add_image("image", np.zeros(shape), dataformats=axes)


BOXES = np.array([[1, 2, 20, 25], [5, 5, 30, 30]])


@pytest.mark.parametrize("labels", [None, "a", ["a"], ["cat", "dog"]])
@pytest.mark.parametrize("rescale", [1, 2])
def test_boxes_are_those_of_torch(labels, rescale, same_as_torch):
    image = picture("CHW", H=32, W=40)

    def add(writer):
        writer.add_image_with_boxes("a", image, BOXES, 1, rescale=rescale, labels=labels)
        of_torch = torch.from_numpy(image), torch.from_numpy(BOXES)
        writer.add_image_with_boxes("b", *of_torch, 1, labels=labels)

    same_as_torch(add)


def test_boxes_of_another_shape_are_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="xmin, ymin"):
        writer.add_image_with_boxes("image", np.zeros((3, 4, 4)), np.zeros((2, 3)))


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
    monkeypatch.delitem(sys.modules, "runhooks.engines.torch.module_graph", raising=False)
    add = {
        "PIL": lambda writer: writer.add_video("video", np.zeros((1, 1, 1, 2, 2))),
        "matplotlib.pyplot": lambda writer: writer.add_figure("figure", None),
        "torch": lambda writer: writer.add_graph(None),
    }[package]
    with SummaryWriter(tmp_path) as writer, pytest.raises(ImportError, match="pip install"):
        add(writer)


def frames_of(gif):
    for frame in range(gif.n_frames):
        gif.seek(frame)
        yield np.asarray(gif.convert("RGB"))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_videos_are_shown_side_by_side(dtype, ours):
    video = np.zeros((3, 2, 1, 4, 6), np.uint8)
    for number in range(3):
        video[number, 0], video[number, 1] = 10 * number + 5, 10 * number + 100
    given = video if dtype == "uint8" else (video + 0.5).astype(dtype) / 255
    events = ours(lambda writer: writer.add_video("video", given, 7, fps=10))
    image = events["."][0].summary.value[0].image
    assert (events["."][0].step, image.height, image.width, image.colorspace) == (7, 4, 24, 1)
    gif = opened(events)
    assert gif.info["duration"] == 100
    expected = [np.concatenate([*video[:, at, 0], np.zeros((4, 6))], axis=1) for at in range(2)]
    assert [f[..., 0].tolist() for f in frames_of(gif)] == [e.tolist() for e in expected]


@pytest.mark.parametrize("colors", [1, 2, 200, 256])
def test_few_colors_of_videos_are_exact(colors, ours):
    rng = np.random.default_rng(0)
    palettes = rng.integers(0, 256, (3, colors, 3), np.uint8)
    frames = np.stack([palette[rng.integers(0, colors, (20, 30))] for palette in palettes])
    video = frames.transpose(0, 3, 1, 2)[None]
    shown = np.stack(list(frames_of(opened(ours(lambda writer: writer.add_video("v", video))))))
    assert shown.tolist() == frames.tolist()


def test_colors_of_videos_are_near(ours):
    y, x = np.mgrid[0:16, 0:16] / 15
    video = np.stack([np.stack([x, y, np.full_like(x, at)]) for at in (0.2, 0.8)])[None]
    events = ours(lambda writer: writer.add_video("video", torch.from_numpy(video)))
    shown = np.stack(list(frames_of(opened(events))))
    assert np.abs(shown / 255 - video[0].transpose(0, 2, 3, 1)).max() < 0.15


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_a_video_has_as_many_frames_as_it_was_given(count, ours):
    video = RNG.random((count, 3, 3, 2, 2))
    events = ours(
        lambda writer: writer.add_video("v", video.transpose(1, 0, 2, 3, 4), 1, 4, 2.5, "TNCHW")
    )
    assert opened(events).n_frames == 3
    assert events["."][0].wall_time == 2.5


@pytest.mark.parametrize("shape", [(4000,), (1, 4000), (4000, 1)], ids=["frames", "row", "column"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_sounds_are_those_of_torch(shape, dtype, same_as_torch, capsys):
    sound = (1.5 * np.sin(np.arange(4000) / 50)).astype(dtype).reshape(shape)

    def add(writer):
        writer.add_audio("sound", sound, 1)
        writer.add_audio("slow", torch.from_numpy(sound), 2, sample_rate=8000)

    same_as_torch(add)


def test_two_channels_are_written(ours):
    sound = np.stack([np.linspace(0, 1, 100), np.linspace(0, -1, 100)], axis=1)
    events = ours(lambda writer: writer.add_audio("sound", sound))
    audio = events["."][0].summary.value[0].audio
    samples = np.frombuffer(audio.encoded_audio_string[44:], "<i2").reshape(100, 2)
    assert (audio.num_channels, audio.length_frames, audio.sample_rate) == (2, 100, 44100)
    assert samples.tolist() == (sound * 32767).astype(int).tolist()


def test_more_channels_are_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(AssertionError, match="1 or 2 channels"):
        writer.add_audio("sound", np.zeros((10, 3)))


@pytest.mark.parametrize(
    "image", [np.full((3, 8, 8), 200.0), np.full((3, 8, 8), 200), -RNG.random((3, 8, 8))]
)
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


@pytest.mark.parametrize("figure", [3, [], ["figure"]])
def test_what_is_no_figure_is_refused(figure, tmp_path):
    with (
        SummaryWriter(tmp_path) as writer,
        pytest.raises(TypeError, match="figure must be a figure of matplotlib"),
    ):
        writer.add_figure("f", figure, 0)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("colors", [4, 256])
def test_equal_frames_of_a_video_stay(channels, colors, ours):
    different = RNG.integers(0, colors, (3, channels, 4, 4), np.uint8)
    video = different[[0, 0, 1, 1, 1, 0, 2, 2]]
    video[4, :, 1:3, 2] += 1  # only a part of the picture
    events = ours(lambda writer: writer.add_video("video", video[None], fps=4))
    gif = opened(events)
    assert [frame.info["duration"] for frame in ImageSequence.Iterator(gif)] == [250] * 8
    (encoded,) = [value.image.encoded_image_string for value in events["."][0].summary.value]
    decoded = tf.io.decode_gif(encoded).numpy()
    expected = np.broadcast_to(video.transpose(0, 2, 3, 1), (8, 4, 4, 3))
    assert decoded.tolist() == expected.tolist()

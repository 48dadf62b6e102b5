"""What another writer writes for the same calls, read by TensorBoard's loader, decides."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorboardX
from PIL import Image
from tensorboard.backend.event_processing.event_file_loader import (
    EventFileLoader,
    LegacyEventFileLoader,
)
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from runhooks.tensorboard import SummaryWriter

Call = Callable[[Any], object]


def events_in(folder: Path) -> dict[str, list[Any]]:
    """The events of each run in ``folder``, without those that say the version of a file."""
    runs: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("*tfevents*")):
        events = list(LegacyEventFileLoader(str(path)).Load())
        name = path.parent.relative_to(folder).as_posix()
        runs.setdefault(name, []).extend(e for e in events if not e.file_version)
    return runs


def shown(event: Any, near: Callable[..., Any] = lambda it, **how: it) -> tuple[int, list[Any]]:
    """The step of an event, and its values as objects that can be compared, ``near`` each other.

    Of a histogram, what does not depend on its buckets; of an image, its colors.
    """
    return event.step, [_plain(value, near) for value in event.summary.value]


def _plain(value: Any, near: Callable[..., Any]) -> list[Any]:
    about = value.metadata
    kind = value.WhichOneof("value")
    names = [
        value.tag,
        about.display_name,
        about.summary_description,
        about.plugin_data.plugin_name,
    ]
    if about.plugin_data.plugin_name == "hparams":
        return names
    content = [about.plugin_data.content, kind]
    if kind == "tensor":
        array = tensor_util.make_ndarray(value.tensor)
        return [*names, *content, array.shape, array.tolist()]
    if kind == "histo":
        histogram = value.histo
        squares = near(histogram.sum_squares, rel=1e-6)
        fields = histogram.min, histogram.max, histogram.num, sum(histogram.bucket)
        return [*names, *fields, near(histogram.sum, rel=1e-6, abs=1e-6), squares]
    if kind == "image":
        pixels = np.asarray(opened(value.image).convert("RGBA")).astype(int)
        return [*names, value.image.height, value.image.width, near(pixels, abs=1)]
    if kind == "audio":
        audio, samples = value.audio, np.frombuffer(value.audio.encoded_audio_string[44:], "<i2")
        fields = audio.sample_rate, audio.num_channels, audio.length_frames, audio.content_type
        return [*names, *fields, near(samples.astype(int), abs=2)]
    return [*names, *content, kind and getattr(value, kind)]


def shown_in(folder: Path, near: Callable[..., Any] = lambda it, **how: it) -> dict[str, list[Any]]:
    """By tag, what TensorBoard shows of its last event: the plugin, the step and the tensor."""
    found = {}
    for path in sorted(folder.rglob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                array = tensor_util.make_ndarray(value.tensor)
                if plugin == "histograms":  # whatever the buckets
                    content = [
                        array[:, 2].sum(),
                        array[:, 0].min(initial=9),
                        array[:, 1].max(initial=-9),
                    ]
                    content = near(np.array(content), rel=1e-6)
                elif plugin == "images":
                    images = [Image.open(io.BytesIO(it)).convert("RGBA") for it in array[2:]]
                    content = [
                        *array[:2],
                        near(np.array(list(map(np.asarray, images))).astype(int), abs=1),
                    ]
                else:
                    content = [array.dtype.name, array.shape, array.tolist()]
                found[value.tag] = [plugin, event.step, content]
    return found


def opened(image: Any) -> Any:
    return Image.open(io.BytesIO(image.encoded_image_string))


@pytest.fixture
def ours(tmp_path: Path) -> Callable[[Call], dict[str, list[Any]]]:
    """What ours writes in ``call``: events by run."""

    def write(call: Call) -> dict[str, list[Any]]:
        with SummaryWriter(tmp_path / "ours") as writer:
            call(writer)
        return events_in(tmp_path / "ours")

    return write


def _same_as(make: Callable[[str], Any], tmp_path: Path, call: Call) -> None:
    with SummaryWriter(tmp_path / "ours") as writer:
        call(writer)
    with make(str(tmp_path / "theirs")) as writer:
        call(writer)
    ours, theirs = events_in(tmp_path / "ours"), events_in(tmp_path / "theirs")
    assert ours.keys() == theirs.keys()
    for run, events in theirs.items():
        expected = [shown(event, pytest.approx) for event in events]
        assert list(map(shown, ours[run])) == expected


@pytest.fixture
def same_as_torch(tmp_path: Path) -> Callable[[Call], None]:
    """Asserts that ours writes in ``call`` what torch's writes."""
    return lambda call: _same_as(TorchWriter, tmp_path, call)


@pytest.fixture
def same_as_tensorboardx(tmp_path: Path) -> Callable[[Call], None]:
    """Asserts that ours writes in ``call`` what tensorboardX's writes."""
    return lambda call: _same_as(tensorboardX.SummaryWriter, tmp_path, call)

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
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
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


def shown(event: Any) -> tuple[int, list[Any]]:
    """The step of an event, and its values as plain objects that can be compared."""
    return event.step, [_plain(value) for value in event.summary.value]


def _plain(value: Any) -> list[Any]:
    metadata = value.metadata
    about = [
        value.tag,
        metadata.display_name,
        metadata.summary_description,
        metadata.plugin_data.plugin_name,
        _plugin(metadata.plugin_data),
    ]
    kind = value.WhichOneof("value")
    if kind is None:
        return about
    content = getattr(value, kind)
    return [*about, kind, *_CONTENTS.get(kind, lambda same: [same])(content)]


def _plugin(data: Any) -> Any:
    if data.plugin_name == "hparams":  # a mapping, whose order means nothing
        return HParamsPluginData.FromString(data.content)
    return data.content


def _tensor(tensor: Any) -> list[Any]:
    array = tensor_util.make_ndarray(tensor)
    return [array.dtype.name, array.shape, array.tolist()]


def _histogram(histogram: Any) -> list[Any]:
    # Libraries may add squares up in another order.
    squares = pytest.approx(histogram.sum_squares, rel=1e-12)
    fields = histogram.min, histogram.max, histogram.num, histogram.sum
    return [*fields, squares, list(histogram.bucket_limit), list(histogram.bucket)]


def pixels_of(image: Any) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(image.encoded_image_string)))


def _image(image: Any) -> list[Any]:
    pixels = pixels_of(image)
    return [image.height, image.width, image.colorspace, pixels.shape, pixels.tolist()]


_CONTENTS = {"tensor": _tensor, "histo": _histogram, "image": _image, "audio": lambda a: [a]}


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
    ours, theirs = (
        {name: list(map(shown, events)) for name, events in events_in(tmp_path / who).items()}
        for who in ("ours", "theirs")
    )
    assert ours == theirs


@pytest.fixture
def same_as_torch(tmp_path: Path) -> Callable[[Call], None]:
    """Asserts that ours writes in ``call`` what torch's writes."""
    return lambda call: _same_as(TorchWriter, tmp_path, call)


@pytest.fixture
def same_as_tensorboardx(tmp_path: Path) -> Callable[[Call], None]:
    """Asserts that ours writes in ``call`` what tensorboardX's writes."""
    return lambda call: _same_as(tensorboardX.SummaryWriter, tmp_path, call)

"""``SummaryWriter`` with the interface of ``flax.metrics.tensorboard``, on runhooks' event files.

from runhooks.tensorboard.flax import SummaryWriter
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.arrays import host_form
from runhooks.arrays.trees import Container, container_of, walk
from runhooks.summary import (
    FileWriter,
    Summary,
    Value,
    clip_value,
    histogram_value,
    picture_value,
    tensor_value,
    text_value,
)

__all__ = ["SummaryWriter"]

_COLORS = (1, 3)


class SummaryWriter:
    """Writes an event file in ``log_dir``, in the background.

    Args:
        log_dir: The directory.
        auto_flush: Whether each call returns when what it writes is in the file. If False, that
            takes 0.2 seconds at the most.

    Raises:
        OSError: No file can be made in ``log_dir``.
    """

    def __init__(self, log_dir: str | os.PathLike[str], auto_flush: bool = True) -> None:
        self._writer = FileWriter(log_dir)
        self._auto_flush = auto_flush

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Write a number."""
        self._writer.scalar(tag, value, step)
        self._flush_if_auto()

    def image(self, tag: str, image: Any, step: int, max_outputs: int = 3) -> None:
        """Write images.

        Args:
            tag: Their tag.
            image: ``[H, W]``, ``[H, W, C]`` with 1 or 3 channels, ``[N, H, W]`` or
                ``[N, H, W, C]``: uint8, or a float type from 0.0 to 1.0.
            step: Their step.
            max_outputs: How many to write at most.
        """
        form = host_form(image)
        shape = form[0] if form is not None else np.shape(image)
        axes = {2: "HW", 3: "HWC" if shape[-1:] and shape[-1] in _COLORS else "NHW"}
        made = picture_value(tag, image, axes.get(len(shape), "NHWC"), max_outputs)
        self._add(made, step)

    def audio(
        self, tag: str, audiodata: Any, step: int, sample_rate: int = 44100, max_outputs: int = 3
    ) -> None:
        """Write sounds, ``[N, frames, channels]``, from -1.0 to 1.0."""
        self._add(clip_value(tag, audiodata[:max_outputs], sample_rate), step)

    def histogram(self, tag: str, values: Any, step: int, bins: int | None = None) -> None:
        """Write how numbers are distributed, in ``bins`` bins; None: 512 at most."""
        self._add(histogram_value(tag, values, bins), step)

    def text(self, tag: str, textdata: str | bytes, step: int) -> None:
        """Write a text, which TensorBoard shows as Markdown."""
        if not isinstance(textdata, str | bytes):
            raise ValueError(f"textdata of {tag!r} must be a str or bytes, got {textdata!r}")
        self._add(text_value(tag, textdata), step)

    def write(self, tag: str, tensor: Any, step: int, metadata: Any = None) -> None:
        """Write an array as it is; ``metadata``: a ``SummaryMetadata`` or its bytes."""
        self._add(tensor_value(tag, tensor, metadata or b""), step)

    def hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write hyperparameters.

        Those in a dict inside are named ``outer.inner``; lists become their ``str``.
        """
        self._writer.hparams(dict(walk(dict(hparams), of=_dict_of, separator=".")))
        self._flush_if_auto()

    def flush(self) -> None:
        """Return when everything written before is on its way to the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Flush, and write no more."""
        self._writer.close()

    def _add(self, value: Value, step: int) -> None:
        self._writer.add_summary(Summary([value]), step)
        self._flush_if_auto()

    def _flush_if_auto(self) -> None:
        if self._auto_flush:
            self._writer.flush()


def _dict_of(value: Any) -> Container | None:
    return container_of(value) if isinstance(value, dict) else None

"""``WeightsAndBiasesWriter``: summaries into a run of Weights & Biases."""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runhooks.events import Histogram
from runhooks.events.writing.write_queue import RemoteQueue, WriteQueue
from runhooks.summary.kinds.histogram import fewer
from runhooks.summary.sinks.points import PointSink, SummaryPoint, optional
from runhooks.summary.writer import QueuedWriter

_STEP = "global_step"
_Row = dict[str, SummaryPoint]


class WeightsAndBiasesWriter(QueuedWriter):
    """Logs to a Weights & Biases run, which you finish yourself after closing the writer.

    The values of a step are logged together with ``global_step``, which W&B uses as the x-axis. So
    a step may be repeated or late; W&B's own step would drop it. Scalars, histograms, images,
    sounds and texts become W&B's; hyperparameters go to ``run.config``. All else is dropped.

    Args:
        run: What ``wandb.init`` returned.

    Raises:
        TypeError: ``run`` is something else.
        ImportError: ``wandb`` or ``pillow`` is not installed.
    """

    def __init__(self, run: Any) -> None:
        super().__init__(RemoteQueue(_Run(run)))
        # wandb.init has registered the end of the run at exit; what is registered later runs first.
        atexit.register(_flush, weakref.ref(self._queue))


class _Run(PointSink):
    def __init__(self, run: Any) -> None:
        super().__init__()
        if not hasattr(run, "define_metric"):
            raise TypeError(f"run must be what wandb.init returned, got {run!r}")
        self._wandb = optional("wandb", "wandb")
        optional("PIL", "pillow")  # for wandb.Image
        self._run = run
        self.name = f"the run {run.name!r} of Weights & Biases"
        run.define_metric(_STEP, hidden=True)
        run.define_metric("*", step_metric=_STEP, step_sync=True)
        self._kinds = {
            "histogram": self._histogram,
            "image": self._images,
            "audio": self._audio,
        }

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        from tempfile import TemporaryDirectory  # not for those who only import runhooks

        with TemporaryDirectory() as directory:
            self._files = MediaFiles(directory)
            for row in _rows(points):
                self._log(row)

    def _log(self, row: _Row) -> None:
        logged: dict[str, Any] = {}
        for point in row.values():
            if point.kind == "scalar" or isinstance(point.value, str):
                logged[point.tag] = point.value
            elif point.kind == "hparams":
                self._run.config.update(point.value, allow_val_change=True)
            elif point.kind in self._kinds:
                logged |= self._kinds[point.kind](point)
        if logged:
            first = next(iter(row.values()))
            self._run.log({_STEP: first.step, "_timestamp": first.wall_time, **logged})

    def _histogram(self, point: SummaryPoint) -> dict[str, Any]:
        counts, edges = _bins(point.value, self._wandb.Histogram.MAX_LENGTH)
        return {point.tag: self._wandb.Histogram(np_histogram=(counts, edges))}

    def _images(self, point: SummaryPoint) -> dict[str, Any]:
        paths = [self._files.write(image.encoded) for image in point.value]
        return {point.tag: [self._wandb.Image(path) for path in paths]}

    def _audio(self, point: SummaryPoint) -> dict[str, Any]:
        # One by one: W&B takes a list of them only with one more package.
        sounds = [self._wandb.Audio(self._files.write(clip.encoded)) for clip in point.value]
        if len(sounds) == 1:
            return {point.tag: sounds[0]}
        return {f"{point.tag}/{index}": sound for index, sound in enumerate(sounds)}


def _flush(queue: weakref.ref[WriteQueue]) -> None:
    living = queue()
    if living is not None:
        living.flush()


def _rows(points: Sequence[SummaryPoint]) -> Iterator[_Row]:
    """Yield the points that can be logged together: of one step, and each tag once."""
    row: _Row = {}
    for point in points:
        if row and (point.tag in row or point.step != next(iter(row.values())).step):
            yield row
            row = {}
        row[point.tag] = point
    if row:
        yield row


def _bins(histogram: Histogram, most: int) -> tuple[list[float], list[float]]:
    """Return at most so many counts, neighbours added up, and their edges, one more."""
    if not histogram.num:
        return [0.0], [0.0, 0.0]
    counts, limits = fewer(histogram.counts, histogram.limits, most)
    # The outermost limits may be far beyond the numbers.
    inner = np.clip(limits[:-1], histogram.min, histogram.max)
    return counts.tolist(), [histogram.min, *inner.tolist(), histogram.max]


_SUFFIXES = {
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"\xff\xd8\xff": ".jpg",
    b"RIFF": ".wav",
}


class MediaFiles:
    """Writes pictures and sounds into files of ``directory``, which its owner removes."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._counter = itertools.count()

    def write(self, encoded: bytes) -> str:
        """Write ``encoded`` to a new file with the suffix of its format; return its path."""
        suffixes = (s for magic, s in _SUFFIXES.items() if encoded.startswith(magic))
        path = self._directory / f"{next(self._counter)}{next(suffixes, '')}"
        path.write_bytes(encoded)
        return str(path)

"""Summaries into runs of experiment trackers: MLflow, and Weights & Biases."""

from __future__ import annotations

import atexit
import importlib
import io
import itertools
import re
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from runhooks.errors import call_all
from runhooks.events import Histogram
from runhooks.events.reading.messages import SESSION_LOG
from runhooks.events.writing.write_queue import RemoteQueue, WriteQueue
from runhooks.summary.kinds.histogram import fewer
from runhooks.summary.points import PointSink, SummaryPoint, json_point
from runhooks.summary.writer import QueuedWriter


def _optional(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is missing: pip install {package}", name=module) from error


def _each(point: SummaryPoint) -> Iterator[tuple[str, Any]]:
    """Yield the elements of ``point``, a batch, each with its own tag."""
    if len(point.value) == 1:
        yield point.tag, point.value[0]
    else:
        yield from ((f"{point.tag}/{index}", part) for index, part in enumerate(point.value))


class MlflowWriter(QueuedWriter):
    """Logs to an MLflow run, which you end yourself.

    Scalars become metrics, hyperparameters become parameters, and images MLflow's images over
    steps. All else becomes artifacts named ``<kind>/<tag>/<step>`` with ``.md``, for texts, or
    ``.json`` after it, as by a ``JsonLinesWriter``. A character that MLflow does not allow in names
    is replaced by ``_``. Session logs are dropped.

    Args:
        run: What ``mlflow.start_run`` returned, or the id of a run.
        tracking_uri: Where the run is. None: what ``mlflow.set_tracking_uri`` has set.

    Raises:
        TypeError: ``run`` is something else.
        ImportError: ``mlflow`` (or ``mlflow-skinny``) or ``pillow`` is not installed.
    """

    def __init__(self, run: Any, tracking_uri: str | None = None) -> None:
        run_id = (
            run if isinstance(run, str) else getattr(getattr(run, "info", None), "run_id", None)
        )
        if not run_id:
            raise TypeError(f"run must be what mlflow.start_run returned, or its id, got {run!r}")
        super().__init__(RemoteQueue(_MlflowRun(run_id, tracking_uri)))


class _MlflowRun(PointSink):
    def __init__(self, run_id: str, tracking_uri: str | None) -> None:
        super().__init__()
        mlflow = _optional("mlflow", "mlflow")
        self._entities = _optional("mlflow.entities", "mlflow")
        self._pillow = _optional("PIL.Image", "pillow")
        self._client = mlflow.MlflowClient(tracking_uri)
        self._run_id = run_id
        self.name = f"the run {run_id!r} of MLflow"
        self._kinds = {"hparams": self._params, "image": self._images, "text": self._text}

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        metrics = [self._metric(point) for point in points if point.kind == "scalar"]
        others = [point for point in points if point.kind not in ("scalar", SESSION_LOG)]
        call_all(
            (
                partial(self._client.log_batch, self._run_id, metrics),
                *(partial(self._kinds.get(point.kind, self._json), point) for point in others),
            )
        )

    def _metric(self, point: SummaryPoint) -> Any:
        milliseconds = round(point.wall_time * 1000)
        return self._entities.Metric(_named(point.tag), point.value, milliseconds, point.step)

    def _params(self, point: SummaryPoint) -> None:
        params = [self._entities.Param(_named(n), str(v)) for n, v in point.value.items()]
        self._client.log_batch(self._run_id, params=params)

    def _images(self, point: SummaryPoint) -> None:
        for tag, image in _each(point):
            picture = self._pillow.open(io.BytesIO(image.encoded))
            key, milliseconds = _path(tag), round(point.wall_time * 1000)
            self._client.log_image(
                self._run_id, picture, key=key, step=point.step, timestamp=milliseconds
            )

    def _text(self, point: SummaryPoint) -> None:
        if isinstance(point.value, str):
            self._client.log_text(self._run_id, point.value, _artifact(point, ".md"))
        else:
            self._json(point)

    def _json(self, point: SummaryPoint) -> None:
        self._client.log_dict(self._run_id, json_point(point), _artifact(point, ".json"))


def _artifact(point: SummaryPoint, suffix: str) -> str:
    return f"{point.kind}/{_path(point.tag)}/{point.step}{suffix}"


def _named(tag: str) -> str:
    """Return ``tag`` as the name of a metric or a parameter."""
    return _plain(re.sub(r"[^\w\-. :/]", "_", tag))


def _path(tag: str) -> str:
    """Return ``tag`` as the name of an artifact or the key of an image."""
    return _plain(re.sub(r"[^\w\-. /]", "_", tag, flags=re.ASCII))


def _plain(path: str) -> str:
    """Return ``path`` without empty parts and dots."""
    parts = (part for part in path.split("/") if part not in ("", ".", ".."))
    return "/".join(parts) or "_"


_STEP = "global_step"
_Row = dict[str, SummaryPoint]
_SUFFIXES = {b"\x89PNG": ".png", b"GIF8": ".gif", b"\xff\xd8\xff": ".jpg", b"RIFF": ".wav"}


class WeightsAndBiasesWriter(QueuedWriter):
    """Logs to a Weights & Biases run, which you finish yourself after closing the writer.

    Values are logged with ``global_step``, which W&B uses as the x-axis: a step may be repeated or
    late, which W&B's own may not. Scalars, histograms, images, sounds and texts become W&B's;
    hyperparameters go to ``run.config``. All else is dropped.

    Args:
        run: What ``wandb.init`` returned.

    Raises:
        TypeError: ``run`` is something else.
        ImportError: ``wandb`` or ``pillow`` is not installed.
    """

    def __init__(self, run: Any) -> None:
        super().__init__(RemoteQueue(_WandbRun(run)))
        # wandb.init has registered the end of the run at exit; what is registered later runs first.
        atexit.register(_flush, weakref.ref(self._queue))


class _WandbRun(PointSink):
    def __init__(self, run: Any) -> None:
        super().__init__()
        if not hasattr(run, "define_metric"):
            raise TypeError(f"run must be what wandb.init returned, got {run!r}")
        self._wandb = _optional("wandb", "wandb")
        _optional("PIL", "pillow")  # for wandb.Image
        self._run = run
        self.name = f"the run {run.name!r} of Weights & Biases"
        run.define_metric(_STEP, hidden=True)
        run.define_metric("*", step_metric=_STEP, step_sync=True)
        self._kinds = {"histogram": self._histogram, "image": self._images, "audio": self._audio}

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        from tempfile import TemporaryDirectory  # not for those who only import runhooks

        with TemporaryDirectory() as directory:
            self._paths = (f"{directory}/{number}" for number in itertools.count())
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
        paths = [self._write(image.encoded) for image in point.value]
        return {point.tag: [self._wandb.Image(path) for path in paths]}

    def _audio(self, point: SummaryPoint) -> dict[str, Any]:
        # One by one: W&B takes a list of them only with one more package.
        return {tag: self._wandb.Audio(self._write(clip.encoded)) for tag, clip in _each(point)}

    def _write(self, encoded: bytes) -> str:
        """Write a picture or sound to a new file with the suffix of its format; return its path."""
        suffixes = (s for magic, s in _SUFFIXES.items() if encoded.startswith(magic))
        path = next(self._paths) + next(suffixes, "")
        Path(path).write_bytes(encoded)
        return path


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

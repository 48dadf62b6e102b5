"""``MlflowWriter``: summaries into a run of MLflow."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from runhooks.events.call_all import call_all
from runhooks.events.reading.kinds import SESSION_LOG
from runhooks.summary.sinks.json_value import json_point
from runhooks.summary.sinks.optional import optional
from runhooks.summary.sinks.point import SummaryPoint
from runhooks.summary.sinks.point_sink import PointSink
from runhooks.summary.sinks.point_writer import PointWriter
from runhooks.summary.sinks.remote_queue import RemoteQueue

_PACKAGE = "mlflow"


class MlflowWriter(PointWriter):
    """Logs to ``run``, one that ``mlflow.start_run`` has made, or the id of one; its owner ends it.

    ``tracking_uri``: where the run is; that of ``mlflow.set_tracking_uri`` if None. Scalars become
    metrics, hyperparameters parameters, images MLflow's images over steps. A sound, a text or
    anything else becomes an artifact, ``<kind>/<tag>/<step>`` with ``.wav``, ``.md`` or ``.json``
    after it; the last is as ``JsonLinesWriter`` says. A character that MLflow has not in its names
    is replaced by ``_``. What is said of sessions has no place there.

    Raises TypeError for another ``run``; ImportError without the packages ``mlflow``, or
    ``mlflow-skinny``, and ``pillow``.
    """

    def __init__(self, run: Any, tracking_uri: str | None = None) -> None:
        run_id = (
            run if isinstance(run, str) else getattr(getattr(run, "info", None), "run_id", None)
        )
        if not run_id:
            raise TypeError(f"run must be what mlflow.start_run has made, or its id, got {run!r}")
        super().__init__(RemoteQueue(_Run(run_id, tracking_uri)))


class _Run(PointSink):
    def __init__(self, run_id: str, tracking_uri: str | None) -> None:
        super().__init__()
        mlflow = optional("mlflow", _PACKAGE)
        self._entities = optional("mlflow.entities", _PACKAGE)
        self._pillow = optional("PIL.Image", "pillow")
        self._client = mlflow.MlflowClient(tracking_uri)
        self._run_id = run_id
        self._kinds = {
            "hparams": self._params,
            "image": self._images,
            "audio": self._audio,
            "text": self._text,
        }

    @property
    def name(self) -> str:
        return f"the run {self._run_id!r} of MLflow"

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

    def _audio(self, point: SummaryPoint) -> None:
        from tempfile import TemporaryDirectory  # not for those who only import runhooks

        for tag, clip in _each(point):
            with TemporaryDirectory() as directory:
                file = Path(directory, f"{point.step}.wav")
                file.write_bytes(clip.encoded)
                self._client.log_artifact(self._run_id, str(file), f"audio/{_path(tag)}")

    def _text(self, point: SummaryPoint) -> None:
        if isinstance(point.value, str):
            self._client.log_text(self._run_id, point.value, _artifact(point, ".md"))
        else:
            self._json(point)

    def _json(self, point: SummaryPoint) -> None:
        self._client.log_dict(self._run_id, json_point(point), _artifact(point, ".json"))


def _each(point: SummaryPoint) -> Iterator[tuple[str, Any]]:
    """Yield what ``point``, a batch, consists of, each with a tag of its own."""
    if len(point.value) == 1:
        yield point.tag, point.value[0]
    else:
        yield from ((f"{point.tag}/{index}", part) for index, part in enumerate(point.value))


def _artifact(point: SummaryPoint, suffix: str) -> str:
    return f"{point.kind}/{_path(point.tag)}/{point.step}{suffix}"


def _named(tag: str) -> str:
    """Return ``tag`` as the name of a metric or a parameter."""
    return _plain(re.sub(r"[^\w\-. :/]", "_", tag))


def _path(tag: str) -> str:
    """Return ``tag`` as the name of an artifact or the key of an image."""
    return _plain(re.sub(r"[^\w\-. /]", "_", tag, flags=re.ASCII))


def _plain(path: str) -> str:
    """Return ``path`` without what would lead elsewhere."""
    parts = (part for part in path.split("/") if part not in ("", ".", ".."))
    return "/".join(parts) or "_"

"""``MlflowWriter``: summaries into a run of MLflow."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from runhooks.errors import call_all
from runhooks.events.reading.messages import SESSION_LOG
from runhooks.events.writing.write_queue import RemoteQueue
from runhooks.summary.sinks.json_lines_writer import json_point
from runhooks.summary.sinks.points import PointSink, SummaryPoint, optional
from runhooks.summary.writer import QueuedWriter

_PACKAGE = "mlflow"


class MlflowWriter(QueuedWriter):
    """Logs to an MLflow run, which you end yourself.

    Scalars become metrics, hyperparameters become parameters, and images MLflow's images over
    steps. Texts and everything else become artifacts named ``<kind>/<tag>/<step>`` with ``.md`` or
    ``.json`` after it; the JSON is that of a ``JsonLinesWriter``. A character
    that MLflow does not allow in names is replaced by ``_``. Session logs are dropped.

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
        super().__init__(RemoteQueue(_Run(run_id, tracking_uri)))


class _Run(PointSink):
    def __init__(self, run_id: str, tracking_uri: str | None) -> None:
        super().__init__()
        mlflow = optional("mlflow", _PACKAGE)
        self._entities = optional("mlflow.entities", _PACKAGE)
        self._pillow = optional("PIL.Image", "pillow")
        self._client = mlflow.MlflowClient(tracking_uri)
        self._run_id = run_id
        self.name = f"the run {run_id!r} of MLflow"
        self._kinds = {
            "hparams": self._params,
            "image": self._images,
            "text": self._text,
        }

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


def _each(point: SummaryPoint) -> Iterator[tuple[str, Any]]:
    """Yield the elements of ``point``, a batch, each with its own tag."""
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
    """Return ``path`` without empty parts and dots."""
    parts = (part for part in path.split("/") if part not in ("", ".", ".."))
    return "/".join(parts) or "_"

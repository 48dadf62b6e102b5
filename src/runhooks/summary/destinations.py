"""Writers to memory, JSON lines, MLflow and Weights & Biases."""

from __future__ import annotations

import atexit
import importlib
import io
import itertools
import json
import os
import re
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from runhooks.arrays.values import read_number, read_numbers
from runhooks.errors import add_note, call_all
from runhooks.events import (
    Histogram,
    Scalars,
    SessionLog,
    SessionStatus,
    SummaryDecoder,
    TaggedValue,
)
from runhooks.events.place import is_elsewhere, local_path, refuse_deleted
from runhooks.events.reading.messages import SESSION_LOG, parse_hparams
from runhooks.events.reading.table import json_value
from runhooks.events.writing.write_queue import (
    MESSAGE,
    Batch,
    RemoteQueue,
    Sink,
    WriteQueue,
)
from runhooks.summary.message import Summary
from runhooks.summary.values import encode_scalar, fewer
from runhooks.summary.writer import QueuedWriter


class SummaryPoint(NamedTuple):
    """One value that was written.

    Attributes:
        tag: Empty for a session log.
        kind: ``"scalar"``, ``"histogram"`` and so on, or ``"session_log"``.
        step: Its step.
        wall_time: When it was added, in seconds since the epoch.
        value: A float, a dict of hyperparameters, or a ``SessionLog``; else as in an
            ``events.Run``.
    """

    tag: str
    kind: str
    step: int
    wall_time: float
    value: Any


class PointSink(Sink):
    """A sink of points; scalars are as they were given, not float32."""

    def __init__(self) -> None:
        self._decoder = SummaryDecoder()

    @abstractmethod
    def write_points(self, points: Sequence[SummaryPoint]) -> None: ...

    def write(self, batch: Batch) -> list[BaseException]:
        points: list[SummaryPoint] = []
        errors: list[BaseException] = []
        for is_message, items in itertools.groupby(
            zip(*batch, strict=True), key=lambda item: item[0] is MESSAGE
        ):
            if not is_message:
                _read(list(items), points, errors)
                continue
            for _, event, _, _ in items:
                try:
                    points += list(self._points(event))
                except Exception as error:  # noqa: BLE001
                    add_note(error, f"a summary of step {event.step} for {self.name} is lost")
                    errors.append(error)
        try:
            self.write_points(points)
        except Exception as error:  # noqa: BLE001
            add_note(error, f"up to {len(points)} values for {self.name} are lost")
            errors.append(error)
        return errors

    def _points(self, event: Any) -> Iterator[SummaryPoint]:
        at = event.step, event.wall_time
        if event.session_log is not None:
            yield SummaryPoint("", SESSION_LOG, *at, SessionLog.FromString(event.session_log))
            return
        for tag, kind, value in self._values(event.summary):
            if kind != "hparams":
                yield SummaryPoint(tag, kind, *at, value)
            elif hparams := parse_hparams(value):
                yield SummaryPoint(tag, kind, *at, hparams)

    def _values(self, summary: bytes | Summary) -> Iterator[TaggedValue]:
        if isinstance(summary, bytes):
            yield from self._decoder.decode(summary)
            return
        for value in summary:
            if value.encode is encode_scalar:
                yield TaggedValue(value.tag, "scalar", _number(value.tag, value.data))
            else:
                yield from self._decoder.decode(Summary([value]).SerializeToString())


def _read(
    items: list[tuple[Any, ...]], points: list[SummaryPoint], errors: list[BaseException]
) -> None:
    tags, values, steps, wall_times = zip(*items, strict=True)
    try:
        numbers = read_numbers(values).tolist()
        columns = zip(tags, map(index, steps), wall_times, numbers, strict=True)
        points += [SummaryPoint(tag, "scalar", *point) for tag, *point in columns]
    except Exception as error:  # noqa: BLE001
        if len(items) == 1:
            add_note(error, f"while reading the scalar {tags[0]!r} of step {steps[0]}")
            errors.append(error)
        else:
            for item in items:
                _read([item], points, errors)


def _number(tag: str, value: Any) -> float:
    try:
        return read_number(value)
    except Exception as error:
        add_note(error, f"while reading the scalar {tag!r}")
        raise


class MemoryWriter(QueuedWriter):
    """Keeps points in memory, for tests and notebooks.

    When a session restarts at a step, those from that step on are dropped, as by TensorBoard.
    """

    def __init__(self) -> None:
        self._memory = _Memory()
        super().__init__(WriteQueue(self._memory))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a MemoryWriter cannot be pickled, since another process has its own memory: use a "
            "JsonLinesWriter"
        )

    @property
    def points(self) -> list[SummaryPoint]:
        """All points, in order; raises the error of one that failed."""
        self.flush()
        return list(self._memory.points)

    def columns(self, tag: str) -> Scalars:
        """Return the points of the scalar ``tag``, as ``events.read`` does, or raise KeyError."""
        scalars = [point for point in self.points if point.kind == "scalar"]
        points = [point for point in scalars if point.tag == tag]
        if not points:
            tags = sorted({point.tag for point in scalars})
            raise KeyError(f"there is no scalar {tag!r}, there are {tags}")
        return Scalars(
            np.array([point.step for point in points], np.int64),
            np.array([point.value for point in points], np.float64),
            np.array([point.wall_time for point in points], np.float64),
        )


class _Memory(PointSink):
    name = "the memory writer"

    def __init__(self) -> None:
        super().__init__()
        self.points: list[SummaryPoint] = []

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        for point in points:
            if point.kind != SESSION_LOG:
                self.points.append(point)
            elif point.value.status == SessionStatus.START:
                self.points = [kept for kept in self.points if kept.step < point.step]


class JsonLinesWriter(QueuedWriter):
    """Appends a line to the file ``path`` for each value.

    A line is an object with the fields of a ``SummaryPoint``. Images and sounds are objects whose
    ``encoded`` is a file in base64. NaN and infinities are the strings ``"NaN"``, ``"Infinity"``
    and ``"-Infinity"``. At a ``session_log`` with status ``START``, readers should drop earlier
    lines of its step and later ones.

    Only whole lines are written, also to a full disk and by several processes to a local one.
    Raises OSError if the file cannot be written, FileNotFoundError once it was deleted.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = local_path(path=path)
        super().__init__(WriteQueue(_JsonLines(self._path)))

    def __reduce__(self) -> tuple[type[JsonLinesWriter], tuple[str]]:
        return JsonLinesWriter, (self._path,)


class _JsonLines(PointSink):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path).absolute()
        self.name = f"the file {str(self._path)!r}"
        self._file = self._open()

    @property
    def is_gone(self) -> bool:
        return self._file.closed or is_elsewhere(self._file, self._path)

    def open(self) -> None:
        before, self._file = self._file, self._open()
        before.close()

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        refuse_deleted(self._file, self._path)
        # In ASCII: some readers end lines at other characters, too.
        lines = [json.dumps(json_point(point)) + "\n" for point in points]
        rest = text = memoryview("".join(lines).encode())
        size = os.fstat(self._file.fileno()).st_size
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # A part of a line would spoil the next.
            written = text[: len(text) - len(rest)].tobytes()
            self._file.truncate(size + written.rfind(b"\n") + 1)
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        self._file.close()

    def _open(self) -> io.FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # as after a crash
                file.write(b"\n")
        return file


def json_point(point: SummaryPoint) -> dict[str, Any]:
    return {**point._asdict(), "value": json_value(point.value)}


def _optional(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is missing: pip install {package}", name=module) from error


def _each(point: SummaryPoint) -> Iterator[tuple[str, Any]]:
    if len(point.value) == 1:
        yield point.tag, point.value[0]
    else:
        yield from ((f"{point.tag}/{index}", part) for index, part in enumerate(point.value))


class MlflowWriter(QueuedWriter):
    """Logs to an MLflow run, which you end yourself.

    Scalars become metrics, hyperparameters parameters, and images MLflow's images over steps. All
    else becomes artifacts: ``<kind>/<tag>/<step>.md``, for a single text, or ``.json``, as by a
    ``JsonLinesWriter``. A character that MLflow does not allow in names becomes ``_``. Session logs
    are dropped.

    Args:
        run: What ``mlflow.start_run`` returned, or the id of a run.
        tracking_uri: Where the run is. None: what ``mlflow.set_tracking_uri`` has set.

    Raises:
        TypeError: ``run`` is something else.
        ImportError: ``mlflow`` (or ``mlflow-skinny``) or ``pillow`` is not installed.
    """

    def __init__(self, run: Any, tracking_uri: str | None = None) -> None:
        info = getattr(run, "info", None)
        run_id = run if isinstance(run, str) else getattr(info, "run_id", None)
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
        calls = [partial(self._client.log_batch, self._run_id, metrics)]
        for point in points:
            if point.kind not in ("scalar", SESSION_LOG):
                calls.append(partial(self._kinds.get(point.kind, self._json), point))
        call_all(calls)

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
    return _plain(re.sub(r"[^\w\-. :/]", "_", tag))


def _path(tag: str) -> str:
    return _plain(re.sub(r"[^\w\-. /]", "_", tag, flags=re.ASCII))


def _plain(path: str) -> str:
    parts = (part for part in path.split("/") if part not in ("", ".", ".."))
    return "/".join(parts) or "_"


_STEP = "global_step"
_Row = dict[str, SummaryPoint]
_SUFFIXES = {b"\x89PNG": ".png", b"GIF8": ".gif", b"\xff\xd8\xff": ".jpg", b"RIFF": ".wav"}


class WeightsAndBiasesWriter(QueuedWriter):
    """Logs to a Weights & Biases run, which you finish yourself after closing the writer.

    The x-axis is ``global_step``, which may repeat or go back, as W&B's own step may not. Scalars,
    histograms, images, sounds and texts become W&B's; hyperparameters go to ``run.config``. All
    else is dropped.

    Args:
        run: What ``wandb.init`` returned.

    Raises:
        TypeError: ``run`` is something else.
        ImportError: ``wandb`` or ``pillow`` is not installed.
    """

    def __init__(self, run: Any) -> None:
        super().__init__(RemoteQueue(_WandbRun(run)))
        # Before the run ends, which wandb.init registered at exit.
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
        from tempfile import TemporaryDirectory  # slow to import

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
        # W&B takes lists only with one more package.
        return {tag: self._wandb.Audio(self._write(clip.encoded)) for tag, clip in _each(point)}

    def _write(self, encoded: bytes) -> str:
        suffixes = (s for magic, s in _SUFFIXES.items() if encoded.startswith(magic))
        path = next(self._paths) + next(suffixes, "")
        Path(path).write_bytes(encoded)
        return path


def _flush(queue: weakref.ref[WriteQueue]) -> None:
    if (living := queue()) is not None:
        living.flush()


def _rows(points: Sequence[SummaryPoint]) -> Iterator[_Row]:
    """Yield points that can be logged together: of one step, each tag once."""
    row: _Row = {}
    for point in points:
        if row and (point.tag in row or point.step != next(iter(row.values())).step):
            yield row
            row = {}
        row[point.tag] = point
    if row:
        yield row


def _bins(histogram: Histogram, most: int) -> tuple[list[float], list[float]]:
    """Return at most ``most`` counts, and their edges, one more."""
    if not histogram.num:
        return [0.0], [0.0, 0.0]
    counts, limits = fewer(histogram.counts, histogram.limits, most)
    # The outermost limits may be far off.
    inner = np.clip(limits[:-1], histogram.min, histogram.max)
    return counts.tolist(), [histogram.min, *inner.tolist(), histogram.max]

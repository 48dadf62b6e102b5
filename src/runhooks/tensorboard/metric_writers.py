"""Metric writers with the interface of ``clu.metric_writers``, on runhooks' event files."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from runhooks.arrays import host_form, is_array, snapshot
from runhooks.arrays.trees import Container, mapped, walk
from runhooks.arrays.values import NUMBERS, read_number
from runhooks.errors import call_all
from runhooks.events.place import inside
from runhooks.events.writing.write_queue import Batch, RemoteQueue, Sink
from runhooks.summary import (
    FileWriter,
    Summary,
    Value,
    clip_value,
    histogram_value,
    mesh_values,
    picture_value,
    tensor_value,
    text_value,
)
from runhooks.summary.media import video_value

__all__ = [
    "AsyncWriter",
    "LoggingWriter",
    "MetricWriter",
    "MultiWriter",
    "SummaryWriter",
    "create_default_writer",
    "ensure_flushes",
    "write_values",
]

_KINDS = ("Scalar", "Summary", "Image", "Audio", "Text", "Histogram", "HyperParam")

_logger = logging.getLogger("runhooks")


class MetricWriter:
    """Writes dicts of values, by tag, at a step; a subclass overrides what it writes."""

    def write_summaries(
        self, step: int, values: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Write arrays as they are; ``metadata``: a ``SummaryMetadata`` or its bytes, by tag."""
        self._call("write_summaries", step, values, metadata=metadata)

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Write numbers."""
        self._call("write_scalars", step, scalars)

    def write_images(self, step: int, images: Mapping[str, Any]) -> None:
        """Write images, ``[N, H, W, C]`` or ``[H, W, C]``: uint8, or floats from 0.0 to 1.0."""
        self._call("write_images", step, images)

    def write_videos(self, step: int, videos: Mapping[str, Any]) -> None:
        """Write videos, ``[N, T, H, W, C]`` or ``[T, H, W, C]`` with 1 or 3 channels, as GIF."""
        self._call("write_videos", step, videos)

    def write_audios(self, step: int, audios: Mapping[str, Any], *, sample_rate: int) -> None:
        """Write sounds, ``[N, T, C]``, floats from -1.0 to 1.0."""
        self._call("write_audios", step, audios, sample_rate=sample_rate)

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Write texts, which TensorBoard shows as Markdown."""
        self._call("write_texts", step, texts)

    def write_histograms(
        self, step: int, arrays: Mapping[str, Any], num_buckets: Mapping[str, int] | None = None
    ) -> None:
        """Write how numbers are distributed; ``num_buckets``: by tag; up to 512 else."""
        self._call("write_histograms", step, arrays, num_buckets=num_buckets)

    def write_pointcloud(
        self,
        step: int,
        point_clouds: Mapping[str, Any],
        *,
        point_colors: Mapping[str, Any] | None = None,
        configs: Mapping[str, Any] | None = None,
    ) -> None:
        """Write points, ``[N, points, 3]``; colors from 0 to 255; classes of three.js, by tag."""
        self._call(
            "write_pointcloud", step, point_clouds, point_colors=point_colors, configs=configs
        )

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write hyperparameters; those in a dict or list inside are named ``outer.inner``."""
        self._call("write_hparams", hparams)

    def flush(self) -> None:
        """Return when everything written before is on its way to the disk."""
        self._call("flush")

    def close(self) -> None:
        """Flush, and write no more."""
        self._call("close")

    def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Do what ``method`` does unless a subclass overrides it."""
        raise NotImplementedError(f"a {type(self).__name__} has no {method}")


class SummaryWriter(MetricWriter):
    """Writes an event file in ``logdir``, in the background, or raises OSError."""

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self._writer = FileWriter(logdir)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        if method == "flush":
            self._writer.flush()
        elif method == "close":
            self._writer.close()
        elif method == "write_hparams":
            flat = walk(args[0], of=_container_of, separator=".")
            # As CLU does, which TensorBoard shows as an empty cell.
            self._writer.hparams({name: "" if it is None else it for name, it in flat})
        elif method == "write_scalars":
            self._writer.scalars(args[1], args[0])
        else:
            step, values = args
            made: list[Value] = []
            for tag, value in values.items():
                options = (it.get(tag) if isinstance(it, Mapping) else it for it in kwargs.values())
                made += _MADE_BY[method](tag, value, *options)
            self._writer.add_summary(Summary(made), step)


# Options are in the order of the method.
_MADE_BY: dict[str, Callable[..., Sequence[Value]]] = {
    "write_summaries": lambda tag, array, metadata: [tensor_value(tag, array, metadata or b"")],
    "write_images": lambda tag, image: [picture_value(tag, image)],
    "write_videos": lambda tag, video: [
        video_value(tag, video[None] if _ndim(video) == 4 else video, axes="NTHWC")
    ],
    "write_audios": lambda tag, sound, sample_rate: [clip_value(tag, sound, sample_rate)],
    "write_texts": lambda tag, text: [text_value(tag, text)],
    "write_histograms": lambda tag, array, buckets: [histogram_value(tag, array, buckets)],
    "write_pointcloud": lambda tag, points, colors, config: mesh_values(
        tag, points, colors, None, config
    ),
}


class LoggingWriter(MetricWriter):
    """Logs scalars, texts and hyperparameters at level INFO, and the shapes of other values.

    Each line begins with ``[collection]``, if given.
    """

    def __init__(self, collection: str | None = None) -> None:
        self._prefix = f"[{collection}] " if collection else ""

    def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        if method in ("flush", "close"):
            return
        if method == "write_hparams":
            _logger.info("%shyperparameters: %s", self._prefix, dict(args[0]))
            return
        step, values = args
        if method == "write_scalars":
            lines = [", ".join(f"{tag}={read_number(it):.6g}" for tag, it in values.items())]
        elif method == "write_texts":
            lines = [f"text {tag}: {text}" for tag, text in values.items()]
        else:
            shapes = [f"{tag} of shape {np.shape(it)}" for tag, it in values.items()]
            lines = [f"{method.removeprefix('write_')}: {', '.join(shapes)}"]
        for line in lines:
            _logger.info("%s[%d] %s", self._prefix, step, line)


class MultiWriter(MetricWriter):
    """Passes everything on to all ``writers``, even if one raises."""

    def __init__(self, writers: Sequence[MetricWriter]) -> None:
        self._writers = tuple(writers)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        methods = (getattr(writer, method) for writer in self._writers)
        call_all(partial(call, *args, **kwargs) for call in methods)


class AsyncWriter(MetricWriter):
    """Passes everything on to ``writer`` in a thread, with the values of the call.

    An error of ``writer`` is raised once, by a later call, which is passed on all the same. Any
    thread or signal handler may call any method, and a forked child too.
    """

    def __init__(self, writer: MetricWriter) -> None:
        self._writer = writer
        self._queue = RemoteQueue(_Calls(f"the thread of {type(writer).__name__}"))

    def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        call = partial(
            getattr(self._writer, method),
            *map(_as_now, args),
            **{name: _as_now(value) for name, value in kwargs.items()},
        )
        if self._queue.closed:
            raise RuntimeError(f"the {type(self).__name__} is closed: make a new one")
        try:
            self._queue.put_message(call)
        except Exception:  # of an earlier call
            self._queue.put_message(call)
            raise

    def flush(self) -> None:
        if not self._queue.closed:
            call_all([self._queue.flush, self._writer.flush])

    def close(self) -> None:
        if not self._queue.closed:
            call_all([self._queue.close, self._writer.flush, self._writer.close])


class _Calls(Sink):
    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, batch: Batch) -> list[BaseException]:
        errors: list[BaseException] = []
        for call in batch.values:
            try:
                call()
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        return errors


def create_default_writer(
    logdir: str | os.PathLike[str] | None = None,
    *,
    just_logging: bool = False,
    asynchronous: bool = True,
    collection: str | None = None,
) -> MetricWriter:
    """Return a writer that logs, and writes an event file unless ``just_logging``.

    Args:
        logdir: The directory of the event file; None: only log.
        just_logging: Whether to only log, as on ranks but the first.
        asynchronous: Whether to log in a thread, which waits for the numbers.
        collection: A directory in ``logdir``, also named in log lines.
    """
    logs: MetricWriter = LoggingWriter(collection)
    if asynchronous:
        logs = AsyncWriter(logs)
    if just_logging or logdir is None:
        return MultiWriter([logs])
    return MultiWriter([logs, SummaryWriter(inside(logdir, *filter(None, [collection])))])


def write_values(writer: MetricWriter, step: int, metrics: Mapping[str, Any]) -> None:
    """Write each of ``metrics``, by tag, with the method of ``writer`` for its type.

    They are numbers, arrays of size 1, or a ``Scalar``, ``Summary``, ``Image``, ``Audio``,
    ``Text``, ``Histogram`` or ``HyperParam`` of ``clu.values``, or of a class of that name with the
    same fields. Raises TypeError for anything else.
    """
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    for tag, value in metrics.items():
        kind = _kind_of(tag, value)
        rate = value.sample_rate if kind == "Audio" else None
        found.setdefault((kind, rate), {})[tag] = value
    for (kind, rate), values in found.items():
        plain = {tag: getattr(value, "value", value) for tag, value in values.items()}
        if kind == "Summary":
            about = {tag: value.metadata for tag, value in values.items()}
            writer.write_summaries(step, plain, metadata=about)
        elif kind == "Histogram":
            buckets = {tag: value.num_buckets for tag, value in values.items()}
            writer.write_histograms(step, plain, num_buckets=buckets)
        elif kind == "Audio":
            writer.write_audios(step, plain, sample_rate=rate)
        elif kind == "HyperParam":
            writer.write_hparams(plain)
        else:
            getattr(writer, f"write_{kind.lower()}s")(step, plain)


@contextmanager
def ensure_flushes(*writers: MetricWriter) -> Iterator[MetricWriter]:
    """Flush ``writers`` at the end of the ``with`` block, which gets the first."""
    try:
        yield writers[0]
    finally:
        call_all(writer.flush for writer in writers)


def _kind_of(tag: str, value: Any) -> str:
    for kind in type(value).__mro__:
        if kind.__name__ in _KINDS and hasattr(value, "value"):
            return kind.__name__
    form = host_form(value) if is_array(value) else None
    if type(value) in NUMBERS or (form is not None and math.prod(form[0]) == 1):
        return "Scalar"
    kinds = ", ".join(_KINDS)
    raise TypeError(f"metric {tag!r} must be a number or one of {kinds}, got {value!r}")


_DICT = Container(lambda it: it.items(), lambda it, parts: dict(zip(it, parts, strict=True)))
_LIST = Container(enumerate, lambda it, parts: parts)


def _container_of(value: Any) -> Container | None:
    if callable(getattr(value, "items", None)):  # ConfigDict of ml_collections is no Mapping
        return _DICT
    return _LIST if isinstance(value, list | tuple) else None


def _as_now(value: Any) -> Any:
    """Return a copy of ``value``, and of the dicts, lists and arrays in it."""
    return mapped(lambda leaf: snapshot(leaf) if is_array(leaf) else leaf, value, _container_of)


def _ndim(array: Any) -> int:
    form = host_form(array)
    return len(form[0]) if form is not None else np.ndim(array)

"""``PointSink``: where values go that are not written as messages, but as what they mean."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

from runhooks.events import Event, SessionLog, SummaryDecoder, TaggedValue
from runhooks.events.reading.hparams import parse_hparams
from runhooks.events.reading.kinds import SESSION_LOG
from runhooks.events.scalar_values import read_number, read_numbers
from runhooks.events.write_queue import MESSAGE, Batch
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.message import Summary
from runhooks.summary.sinks.point import SummaryPoint

_encode_scalar = scalar_value("", 0.0).encode


class PointSink(ABC):
    """Takes points out of the batches of a ``WriteQueue``.

    Summaries of any writer are decoded from their bytes. Only the scalars of ours are taken as
    they were given: on the wire they are float32.
    """

    def __init__(self) -> None:
        self._decoder = SummaryDecoder()

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in errors."""

    @abstractmethod
    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        """Write ``points``, in order."""

    @property
    def is_gone(self) -> bool:
        """Whether somebody has deleted it."""
        return False

    def open(self) -> None:
        """Go on where it was closed, or anew if it is gone."""
        return

    def close(self) -> None:
        """Write no more."""
        return

    def forked(self) -> None:
        """Go on in a child process."""
        return

    def write(self, batch: Batch) -> list[BaseException]:
        """Write ``batch``; return what went wrong. What is at fault is lost."""
        points: list[SummaryPoint] = []
        errors: list[BaseException] = []
        for is_message, items in itertools.groupby(zip(*batch, strict=True), key=_is_message):
            if is_message:
                self._decode(items, points, errors)
            else:
                _read(list(items), points, errors)
        try:
            self.write_points(points)
        except Exception as error:  # noqa: BLE001 (the caller of the writer gets it)
            error.add_note(f"up to {len(points)} values for {self.name} are lost")
            errors.append(error)
        return errors

    def _decode(
        self,
        items: Iterator[tuple[Any, ...]],
        points: list[SummaryPoint],
        errors: list[BaseException],
    ) -> None:
        for _, event, _, _ in items:
            try:
                points += self._points(event)
            except Exception as error:  # noqa: BLE001 (likewise)
                error.add_note(f"a summary of step {event.step} for {self.name} is lost")
                errors.append(error)

    def _points(self, event: Event) -> list[SummaryPoint]:
        at = event.step, event.wall_time
        if event.session_log is not None:
            log = SessionLog.FromString(_serialized(event.session_log))
            return [SummaryPoint("", SESSION_LOG, *at, log)]
        values = self._values(event.summary)
        points = (SummaryPoint(value.tag, value.kind, *at, value.value) for value in values)
        return [meant for meant in map(_meant, points) if meant is not None]

    def _values(self, summary: Any) -> Iterator[TaggedValue]:
        if not isinstance(summary, Summary):
            yield from self._decoder.decode(_serialized(summary))
            return
        for value in summary:
            if value.encode is _encode_scalar:
                yield TaggedValue(value.tag, "scalar", _number(value.tag, value.data))
            else:
                yield from self._decoder.decode(Summary([value]).SerializeToString())


def _is_message(item: tuple[Any, ...]) -> bool:
    return item[0] is MESSAGE


def _serialized(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _read(
    items: list[tuple[Any, ...]], points: list[SummaryPoint], errors: list[BaseException]
) -> None:
    """Append the points of ``items``, which are scalars as they were given."""
    tags, values, steps, wall_times = zip(*items, strict=True)
    try:
        numbers = read_numbers(values).tolist()
        columns = zip(tags, map(index, steps), wall_times, numbers, strict=True)
        points += [SummaryPoint(tag, "scalar", *point) for tag, *point in columns]
    except Exception as error:  # noqa: BLE001 (likewise)
        if len(items) == 1:
            error.add_note(f"while reading the scalar {tags[0]!r} of step {steps[0]}")
            errors.append(error)
        else:
            for item in items:
                _read([item], points, errors)


def _number(tag: str, value: Any) -> float:
    try:
        return read_number(value)
    except Exception as error:
        error.add_note(f"while reading the scalar {tag!r}")
        raise


def _meant(point: SummaryPoint) -> SummaryPoint | None:
    if point.kind != "hparams":
        return point
    hparams = parse_hparams(point.value)
    return point._replace(value=hparams) if hparams else None

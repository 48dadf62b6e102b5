"""Points: summaries as values, for writers to places that do not take messages."""

from __future__ import annotations

import importlib
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from operator import index
from types import ModuleType
from typing import Any, NamedTuple

from runhooks.arrays.values import read_number, read_numbers
from runhooks.errors import add_note
from runhooks.events import Event, SessionLog, SummaryDecoder, TaggedValue
from runhooks.events.reading.messages import SESSION_LOG, parse_hparams
from runhooks.events.writing.write_queue import MESSAGE, Batch, Sink
from runhooks.summary.kinds.scalar import encode_scalar
from runhooks.summary.message import Summary


def optional(module: str, package: str) -> ModuleType:
    """Return ``module``. Raises ImportError, naming ``package``, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is missing: pip install {package}", name=module) from error


class SummaryPoint(NamedTuple):
    """One value that was written.

    Attributes:
        tag: Its tag; empty for a session log.
        kind: The kind of summary: ``"scalar"``, ``"histogram"`` and so on, or ``"session_log"``.
        step: Its step.
        wall_time: When it was added, in seconds since the epoch.
        value: A float for a scalar, a dict for hyperparameters, a ``SessionLog`` for a session
            log; else what the points of that kind in an ``events.Run`` hold.
    """

    tag: str
    kind: str
    step: int
    wall_time: float
    value: Any


class PointSink(Sink):
    """A sink that makes points of what is written.

    Summaries are decoded from their bytes. Only our scalars are taken as they were given, since
    encoding makes them float32.
    """

    def __init__(self) -> None:
        self._decoder = SummaryDecoder()

    @abstractmethod
    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        """Write ``points``, in order."""

    def write(self, batch: Batch) -> list[BaseException]:
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
            add_note(error, f"up to {len(points)} values for {self.name} are lost")
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
            except Exception as error:  # noqa: BLE001 (as above)
                add_note(error, f"a summary of step {event.step} for {self.name} is lost")
                errors.append(error)

    def _points(self, event: Event) -> list[SummaryPoint]:
        at = event.step, event.wall_time
        if event.session_log is not None:
            log = SessionLog.FromString(_serialized(event.session_log))
            return [SummaryPoint("", SESSION_LOG, *at, log)]
        values = self._values(event.summary)
        points = (SummaryPoint(value.tag, value.kind, *at, value.value) for value in values)
        return [parsed for parsed in map(_with_hparams, points) if parsed is not None]

    def _values(self, summary: Any) -> Iterator[TaggedValue]:
        if not isinstance(summary, Summary):
            yield from self._decoder.decode(_serialized(summary))
            return
        for value in summary:
            if value.encode is encode_scalar:
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
    except Exception as error:  # noqa: BLE001 (as above)
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


def _with_hparams(point: SummaryPoint) -> SummaryPoint | None:
    """Return ``point``, its hyperparameters parsed; None for a record without any."""
    if point.kind != "hparams":
        return point
    hparams = parse_hparams(point.value)
    return point._replace(value=hparams) if hparams else None

"""``NewPoints``: what has come to growing runs since one looked last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks import events


class Row(NamedTuple):
    """What a run wrote of one step: values by tag, or that a session began at it.

    ``wall_time``: of the first of them, in seconds since the epoch.
    """

    run: str
    step: int
    wall_time: float
    values: dict[str, float]
    started: bool = False


class _Point(NamedTuple):
    wall_time: float
    run: str
    step: int
    tag: str | None  # None: a session began
    value: float


class NewPoints:
    """The points of scalars, and the starts of sessions, that come to ``runs``."""

    def __init__(self, runs: events.Runs) -> None:
        self._runs = runs
        self._seen: dict[tuple[str, str], events.Scalars] = {}
        self._starts_seen: dict[str, list[events.Point]] = {}

    def take(self, most: int | None = None) -> list[Row]:
        """Return what is new since the last call, in the order of time; the ``most`` last rows."""
        points = [point for run in self._runs.values() for point in self._of(run, most)]
        rows = _rows(sorted(points, key=lambda point: point.wall_time))
        return rows if most is None else rows[-most:]

    def _of(self, run: events.Run, most: int | None) -> Iterator[_Point]:
        starts = [it for it in run.session_logs if it.value.status == events.SessionStatus.START]
        seen_starts = self._starts_seen.get(run.name, ())
        new_starts = [it for it in starts if it not in seen_starts]
        self._starts_seen[run.name] = starts
        for it in new_starts:
            yield _Point(it.wall_time, run.name, it.step, None, 0.0)
        back_to = min((it.step for it in new_starts), default=None)
        for tag, scalars in run.scalars.items():
            seen = self._seen.get((run.name, tag))
            self._seen[run.name, tag] = scalars
            new = slice(None) if seen is None else _new(scalars, seen, back_to)
            last = slice(None) if most is None else slice(-most, None)  # a row has one of a tag
            columns = [column[new][last].tolist() for column in scalars]
            for step, value, wall_time in zip(*columns, strict=True):
                yield _Point(wall_time, run.name, step, tag, value)


def _new(
    scalars: events.Scalars, seen: events.Scalars, back_to: int | None
) -> slice | NDArray[np.bool_]:
    """Return which of ``scalars`` are new. ``back_to``: where a session started again, or None."""
    if back_to is not None:  # it took back what was seen from there on
        return slice(int(np.count_nonzero(seen.steps < back_to)), None)
    known = len(seen.steps)
    if np.array_equal(seen.wall_times, scalars.wall_times[:known]):
        return slice(known, None)
    return ~np.isin(scalars.wall_times, seen.wall_times)  # a file was replaced, or is gone


def _rows(points: Sequence[_Point]) -> list[Row]:
    rows: list[Row] = []
    latest: dict[str, Row] = {}
    for point in points:
        row = latest.get(point.run)
        if row is None or row.step != point.step or row.started or point.tag in (None, *row.values):
            row = Row(point.run, point.step, point.wall_time, {}, started=point.tag is None)
            rows.append(row)
            latest[point.run] = row
        if point.tag is not None:
            row.values[point.tag] = point.value
    return rows

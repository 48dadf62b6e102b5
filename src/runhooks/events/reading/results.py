"""The results of a reader: columns of scalars, points of other kinds, and damages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from runhooks.stores.path import AnyPath


class Damage(NamedTuple):
    """A stretch of a file that cannot be read: ``skipped`` bytes from byte ``offset`` on."""

    path: AnyPath
    offset: int
    skipped: int
    reason: str


class Scalars(NamedTuple):
    """All points of a scalar tag, in the order in which they were written.

    ``steps``: int64 ``[n]``. ``values``: float64 ``[n]``. ``wall_times``: float64 ``[n]``, seconds
    since the epoch.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]


class Point(NamedTuple):
    """One point of a tag. ``wall_time``: seconds since the epoch. ``value``: see ``Run``."""

    step: int
    wall_time: float
    value: Any


class Points(Sequence[Point]):
    """The points of one tag, in the order in which they were written.

    A point is read from its file and decoded when it is indexed or iterated over. This raises
    OSError if the file is gone, and DataLossError if the value is malformed.

    Attributes:
        steps: int64 ``[n]``.
        wall_times: float64 ``[n]``, seconds since the epoch.
    """

    def __init__(
        self,
        steps: NDArray[np.int64],
        wall_times: NDArray[np.float64],
        value: Callable[[int], Any],
    ) -> None:
        self.steps = steps
        self.wall_times = wall_times
        self._value = value

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...

    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]  # raises IndexError
        return Point(int(self.steps[at]), float(self.wall_times[at]), self._value(at))

    def __repr__(self) -> str:
        return f"Points({len(self)} points)"

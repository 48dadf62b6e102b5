"""The results of a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from runhooks.near_names import suggestion
from runhooks.stores.path import AnyPath


class Damage(NamedTuple):
    """A stretch of a file that cannot be read: ``skipped`` bytes from byte ``offset`` on."""

    path: AnyPath
    offset: int
    skipped: int
    reason: str


class Scalars(NamedTuple):
    """All points of a scalar tag, in the order in which they were written.

    Each column is ``[n]``. ``wall_times``: seconds since the epoch.
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

    ``steps``: int64 ``[n]``. ``wall_times``: float64 ``[n]``, seconds since the epoch. Accessing a
    point reads and decodes it, and raises OSError if the file is gone, DataLossError if it was
    replaced or the value is malformed.
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
        at = range(len(self))[index]
        return Point(int(self.steps[at]), float(self.wall_times[at]), self._value(at))

    def __repr__(self) -> str:
        return f"Points({len(self)} points)"


_MANY = 10


class UnknownNameError(KeyError):
    def __init__(self, name: object, noun: str, known: tuple[str, ...]) -> None:
        super().__init__(name, noun, known)

    def __str__(self) -> str:
        name, noun, known = self.args
        if meant := suggestion(str(name), known):
            return f"no {noun} {name!r}{meant}"
        if not known:
            return f"no {noun} {name!r}: there is none at all"
        rest = f" and {len(known) - _MANY} more" if len(known) > _MANY else ""
        return f"no {noun} {name!r} among {', '.join(map(repr, known[:_MANY]))}{rest}"


_Value = TypeVar("_Value")


class NameMapping(Mapping[str, _Value]):
    """Maps names to ``values``; ``noun``, for errors: what they denote."""

    def __init__(self, noun: str, values: dict[str, Any]) -> None:
        self._noun = noun
        self._values = values

    def __getitem__(self, name: str) -> _Value:
        if name not in self._values:
            raise UnknownNameError(name, self._noun, tuple(self._values))
        value: _Value = self._values[name]
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<{', '.join(map(repr, self))}>"


class LazyMapping(NameMapping[_Value]):
    """Maps ``names``, sorted, to what ``make`` returns for them, called at most once each."""

    def __init__(self, noun: str, names: Iterable[str], make: Callable[[str], _Value]) -> None:
        super().__init__(noun, dict.fromkeys(sorted(names)))
        self._make = make

    def __getitem__(self, name: str) -> _Value:
        value = super().__getitem__(name)
        if value is None:
            value = self._values[name] = self._make(name)
        return value

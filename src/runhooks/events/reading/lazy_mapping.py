"""``LazyMapping``: sorted names, and values that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from runhooks.events.reading.unknown_name import UnknownNameError

_Value = TypeVar("_Value")


class LazyMapping(Mapping[str, _Value]):
    """Maps ``names``, sorted, to what ``make`` returns for them; each is made at most once.

    ``noun``: what the names are of.
    """

    def __init__(self, noun: str, names: Iterable[str], make: Callable[[str], _Value]) -> None:
        self._noun = noun
        self._made: dict[str, _Value | None] = dict.fromkeys(sorted(names))
        self._make = make

    def __getitem__(self, name: str) -> _Value:
        if name not in self._made:
            raise UnknownNameError(name, self._noun, tuple(self._made))
        value = self._made[name]
        if value is None:
            value = self._made[name] = self._make(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return f"<{', '.join(map(repr, self._made))}>"

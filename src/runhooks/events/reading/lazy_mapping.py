"""``LazyMapping``: sorted names whose values are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from runhooks.near_names import suggestion

_MANY = 10


class UnknownNameError(KeyError):
    """A KeyError that lists the known names; its text is made when it is asked for."""

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


class LazyMapping(Mapping[str, _Value]):
    """Maps ``names``, sorted, to what ``make`` returns for them, called at most once each.

    ``noun``: what the names denote, for errors.
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

"""``Keeper``: the two methods of an object that knows its position."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

_METHODS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class Keeper(NamedTuple):
    """The two methods of a stateful object. They copy states, which may be views of live ones."""

    get: Callable[[], Any]
    set: Callable[[Any], Any]

    def save(self) -> Any:
        return copy.deepcopy(self.get())

    def load(self, position: Any) -> None:
        self.set(copy.deepcopy(position))


def keeper_of(part: Any) -> Keeper | None:
    """Return the methods of ``part``, if it is stateful."""
    for names in _METHODS:
        get, set_ = (getattr(part, name, None) for name in names)
        if callable(get) and callable(set_):
            return Keeper(get, set_)
    return None

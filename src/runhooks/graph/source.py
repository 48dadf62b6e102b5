"""``Source``: what an input draws from, and the position in it that a checkpoint keeps.

*Stateful* is an object with ``state_dict`` and ``load_state_dict``, as torchdata's
``StatefulDataLoader`` is, or with ``get_state`` and ``set_state``, as grain's iterators are.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from runhooks import clock

_log = logging.getLogger("runhooks")

_METHODS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class Source:
    """Where an input draws from: an iterable, or a function of the step that returns one.

    What is stateful (this, what the function returns, or the iterator of that) says where it is.
    ``epochs``: how often it is gone through; None: for ever.
    """

    def __init__(
        self, source: Iterable[Any] | Callable[[int], Iterable[Any]], epochs: int | None = 1
    ) -> None:
        self._source = source
        self._epochs = epochs
        self._first: tuple[Any, Any] | None = None  # what was stateful, and where it then was

    def open(self, name: str, step: int, position: Mapping[str, Any] | None = None) -> OpenInput:
        """The elements from ``position`` on, which an ``OpenInput`` has told.

        If it is None, a stateful iterable goes back to where it was when first opened. A function
        is called with ``step`` in any case. ``name``: that of the input, for messages.

        Raises TypeError if the source gives no iterable, and what the source raises.
        """
        done = 0 if position is None else position.get("epoch", 0)
        if position is not None and self._epochs is not None and done >= self._epochs:
            return OpenInput(iter(()), partial(dict, position), by_step=False)
        # Where its source tells nothing, the epoch that it was in begins anew.
        place = position if position is not None and "state" in position else None
        try:
            source = self._source
            keeper = self._placed(source, place)
            elements = source(step) if callable(source) else source
            keeper = keeper or self._placed(elements, place)
            first = None if keeper is None or self._first is None else self._first[1]
            passes = _Passes(elements, keeper, first, self._epochs, done)
            if keeper is None and (keeper := passes.keeper) and place is not None:
                keeper.load(place["state"])
        except Exception as error:
            error.add_note(
                f"in the input {name!r} of the graph, whose source must be an iterable, or a "
                f"function of the step (here {step}) that returns one"
            )
            raise
        if keeper is None and place is not None:
            _log.warning(
                "the checkpoint knows how far the input %r had come, but its source has no "
                "load_state_dict or set_state to go there: it begins anew, at step %d",
                name,
                step,
            )
        by_step = keeper is None and callable(source)
        return OpenInput(passes, passes.position, by_step=by_step)

    def _placed(self, part: Any, position: Mapping[str, Any] | None) -> _Keeper | None:
        """Take ``part``, if it is stateful, to ``position``, or to where it was at first."""
        keeper = _keeper(part)
        if keeper is None:
            return None
        if position is not None:
            # Not asked of ``part`` itself, for a loader might start its workers to tell it.
            self._first = part, position.get("first", position["state"])
            keeper.load(position["state"])
        elif self._first is None or self._first[0] is not part:
            self._first = part, keeper.save()
        else:
            keeper.load(self._first[1])
        return keeper


class OpenInput:
    """An input in one session: ``iterator`` gives its elements.

    ``position()``: how far it has come, as ``Source.open`` takes it; None if nobody can tell.
    ``by_step``: a function of the global step gave it, and nothing else says where it is.
    """

    __slots__ = ("by_step", "iterator", "position")

    def __init__(
        self,
        iterator: Iterator[Any],
        position: Callable[[], dict[str, Any] | None],
        *,
        by_step: bool,
    ) -> None:
        self.iterator = iterator
        self.by_step = by_step
        self.position = position

    def timed(self, spend: Callable[[float], None]) -> None:
        """From now on hand ``spend`` the seconds that each element takes."""
        self.iterator = _Timed(self.iterator, spend)


class _Passes:
    """Goes through ``elements`` up to ``epochs`` times, ``done`` of which it was gone through."""

    def __init__(
        self,
        elements: Iterable[Any],
        keeper: _Keeper | None,
        first: Any,
        epochs: int | None,
        done: int,
    ) -> None:
        self._elements = elements
        self._own_keeper = keeper
        self._first = first
        self._epochs = epochs
        self._done = done
        self._iterator = iter(elements)

    @property
    def keeper(self) -> _Keeper | None:
        """What says how far it has come in this epoch."""
        return self._own_keeper or _keeper(self._iterator)

    def position(self) -> dict[str, Any] | None:
        told: dict[str, Any] = {}
        if (keeper := self.keeper) is not None:
            told["state"] = keeper.save()
            if self._first is not None:
                told["first"] = self._first
        elif self._epochs == 1:
            return None
        if self._done:
            told["epoch"] = self._done
        return told or None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._done == self._epochs:
            raise StopIteration
        try:
            return next(self._iterator)
        except StopIteration:
            self._done += 1
            if self._done == self._epochs:
                raise
        self._iterator = iter(self._elements)
        return next(self._iterator)  # of what is empty this is the end


class _Keeper(NamedTuple):
    """The two methods of what is stateful; a state is copied, it may be a view of a live one."""

    get: Callable[[], Any]
    set: Callable[[Any], Any]

    def save(self) -> Any:
        return copy.deepcopy(self.get())

    def load(self, position: Any) -> None:
        self.set(copy.deepcopy(position))


def _keeper(part: Any) -> _Keeper | None:
    for names in _METHODS:
        get, set_ = (getattr(part, name, None) for name in names)
        if callable(get) and callable(set_):
            return _Keeper(get, set_)
    return None


class _Timed:
    def __init__(self, iterator: Iterator[Any], spend: Callable[[float], None]) -> None:
        self._iterator = iterator
        self._spend = spend

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        begin = clock.monotonic()
        try:
            return next(self._iterator)
        finally:
            self._spend(clock.monotonic() - begin)

"""``Passes``: the elements of an iterable, epoch after epoch, and the position among them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from runhooks.graph.input_generators import InputGenerators, holders
from runhooks.graph.keeper import Keeper, keeper_of

_log = logging.getLogger("runhooks")


class Passes:
    """Draws from ``elements`` up to ``epochs`` times, of which ``done`` are done.

    ``is_between``: whether the next has yet to begin. ``generators``: those that ``elements`` may
    draw from; ``random``: their states in the position that it is to go to. ``arrange``: what to
    make of an element.
    """

    def __init__(
        self,
        elements: Iterable[Any],
        keeper: Keeper | None,
        first: Any,
        epochs: int | None,
        done: int,
        is_between: bool,
        generators: InputGenerators | None,
        random: Mapping[str, Any] | None,
        arrange: Callable[[Any], Any] | None,
    ) -> None:
        self._arrange = arrange
        self._elements = elements
        self._own_keeper = keeper
        self._first = first
        self._epochs = epochs
        self._done = done
        self._count: Count | None = None
        #: How many elements there are in an epoch; None if they do not say.
        self.length = _length(elements)
        #: The name to warn with if there is no element at all.
        self.empty: str | None = None
        self._generators = generators
        self._random = random or {}
        if generators is not None and self._random:
            if keeper is None and done and getattr(elements, "persistent_workers", False):
                iter(elements)  # workers were started, and their seed drawn, in the first epoch
            generators.go_to(self._random, "epoch")
            generators.begin_epoch()
        self._iterator: Iterator[Any] | None = None if is_between else self._iterate()
        self._is_fresh = is_between or (keeper is None and self._generators is not None)

    @property
    def keeper(self) -> Keeper | None:
        """The object that knows the position in this epoch, or None."""
        return self._own_keeper or keeper_of(self._iterator)

    def count(self, count: Count) -> None:
        """Let ``count`` have the number of elements of this epoch, as its position."""
        self._count = count

    def skip(self, elements: int) -> None:
        """Draw so many ``elements``, or as many as this epoch has."""
        generators = self._generators
        if generators is not None and elements:
            generators.go_to(self._random, "first")
            self._begin_elements()
        if self._iterator is not None:
            for _ in itertools.islice(self._iterator, elements):
                self._count_one()
        if generators is not None:
            generators.go_to(self._random)

    def position(self) -> dict[str, Any] | None:
        told: dict[str, Any] = {}
        has_ended = self._done == self._epochs
        if self._count is not None:
            told["drawn"] = self._count.elements
            if self.length is not None:
                told["length"] = self.length
        elif (keeper := self.keeper) is not None:
            # Where an iterator has ended, the next one does not begin.
            if keeper is self._own_keeper or not has_ended:
                told["state"] = keeper.save()
                if self._first is not None:
                    told["first"] = self._first
        elif self._epochs == 1:
            return None
        if self._generators is not None and (random := self._generators.position()):
            told["random"] = random
        if self._done:
            told["epoch"] = self._done
        if has_ended:
            told["ended"] = True
        return told or None

    def draw(self) -> Any:
        """Return the next element, arranged. Raises StopIteration after the last."""
        if self._done == self._epochs:
            raise StopIteration
        if self._is_fresh:
            self._begin_elements()
        assert self._iterator is not None, "an epoch has begun"
        try:
            element = next(self._iterator)
        except StopIteration:
            self._done += 1
            if self.empty is not None:
                _log.warning("the input %r has no elements", self.empty)
                raise
            if self._count is not None:
                self._count.elements = 0
            if self._done == self._epochs:
                raise
            self._iterator = self._begin_epoch()
            element = next(self._iterator)  # of what is empty this is the end
        self.empty = None
        if (count := self._count) is not None:
            count.elements += 1
        return element if self._arrange is None else self._arrange(element)

    def _count_one(self) -> None:
        self.empty = None
        if self._count is not None:
            self._count.elements += 1

    def _begin_elements(self) -> None:
        self._is_fresh = False
        if self._iterator is None:
            self._iterator = self._begin_epoch()
        elif self._generators is not None:
            self._generators.begin_elements()

    def _begin_epoch(self) -> Iterator[Any]:
        if self._generators is not None:
            self._generators.begin_epoch()
        return self._iterate()

    def _iterate(self) -> Iterator[Any]:
        if self._epochs != 1:  # else the program counts epochs itself
            for holder in _epoch_holders(self._elements):
                holder.set_epoch(self._done)
        return iter(self._elements)


class Count:
    """A number of elements."""

    __slots__ = ("elements",)

    def __init__(self) -> None:
        self.elements = 0


def _length(elements: Any) -> int | None:
    try:
        return len(elements)
    except (AttributeError, NotImplementedError, TypeError):  # a loader of an iterable has none
        return None


def _epoch_holders(elements: Any) -> list[Any]:
    """Return the objects that shuffle by an epoch: a loader, or its samplers and data set."""
    outer, *inner = [it for _, it in holders(elements)]
    found = [it for it in inner if callable(getattr(it, "set_epoch", None))]
    return [outer] if callable(getattr(outer, "set_epoch", None)) else found

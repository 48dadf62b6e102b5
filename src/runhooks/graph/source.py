"""``Source``: where an input draws from, epoch after epoch, and its position for checkpoints.

*Stateful* is an object with ``state_dict`` and ``load_state_dict``, as torchdata's
``StatefulDataLoader`` is, or with ``get_state`` and ``set_state``, as grain's iterators are. Where
nothing is, and nothing goes by the step, elements are counted.
"""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.errors import add_note
from runhooks.graph.generators import InputGenerators, generators_of, holders, is_container

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
        self._count_one()
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


@dataclass(slots=True, eq=False)
class Count:
    """A number of elements."""

    elements: int = 0


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


class Source:
    """The source of an input: an iterable, or a function of the step that returns one.

    Its position is known if the iterable, the result of the function, or the iterator is stateful;
    that of another iterable is the number of elements that were drawn.
    ``epochs``: how often to go through it; None: for ever. ``arrange``: what to make of an element.
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[[int], Iterable[Any]],
        epochs: int | None = 1,
        arrange: Callable[[Any], Any] | None = None,
    ) -> None:
        self._source = source
        self._epochs = epochs
        self._arrange = arrange
        self._first: tuple[Any, Any] | None = None  # what was stateful, and where it then was
        # What an iterator has given cannot be had again, so it is counted across sessions.
        self._given = Count() if isinstance(source, Iterator) else None

    @property
    def epochs(self) -> int | None:
        """How often to go through it; None: without end, or it is no iterable to repeat."""
        is_iterated_anew = self._given is None and not callable(self._source)
        return self._epochs if is_iterated_anew else None

    def open(self, name: str, step: int, position: Mapping[str, Any] | None = None) -> OpenInput:
        """Return the input, open at ``position``.

        Args:
            name: The name of the input, for messages.
            step: The global step, with which a function is called.
            position: A position of an ``OpenInput``; None: a stateful iterable goes back to where
                it was when it was first opened.

        Raises:
            TypeError: If the source is not an iterable and does not return one.
            Exception: Whatever the source raises.
        """
        done = 0 if position is None else position.get("epoch", 0)
        if position is not None and self._epochs is not None and done >= self._epochs:
            return self._at_end(name, step, position)
        place = position if position is not None and "state" in position else None
        try:
            source, generators, random = self._source, None, None
            if self._given is None and not callable(source):
                generators = generators_of(source)  # to ask for a state may draw from them
                random = None if position is None else position.get("random")
            keeper = self._placed(source, place)
            elements = source(step) if callable(source) else source
            keeper = keeper or self._placed(elements, place)
            first = None if keeper is None or self._first is None else self._first[1]
            is_between = position is not None and "ended" in position
            passes = Passes(
                *(elements, keeper, first, self._epochs, done, is_between),
                *(generators, random, self._arrange),
            )
            if keeper is None and (keeper := passes.keeper) and place is not None:
                keeper.load(place["state"])
            by_step = keeper is None and callable(source)
            if keeper is None and position is None:
                passes.empty = name
            if keeper is None and not by_step:
                self._go_on(passes, name, step, position or {})
            else:
                passes.skip(0)
        except Exception as error:
            add_note(
                error,
                f"in the input {name!r} of the graph, whose source must be an iterable, or a "
                f"function of the step (here {step}) that returns one",
            )
            raise
        if keeper is None and place is not None:
            _log.warning(
                "the input %r starts over at step %d: the checkpoint has its position, but its "
                "source has no load_state_dict or set_state",
                name,
                step,
            )
        return OpenInput(passes.draw, passes.position, by_step=by_step)

    def _at_end(self, name: str, step: int, position: Mapping[str, Any]) -> OpenInput:
        """Return the input, of which nothing is left; whoever draws from it is told."""
        if (random := position.get("random")) is not None:
            generators = generators_of(self._source)
            if generators is not None:
                generators.go_to(random)

        def nothing() -> Iterator[Any]:
            _log.warning(
                "the input %r is at its end: the checkpoint of step %d was saved when all of it "
                "was drawn. To train on, give more epochs or another checkpoint_dir",
                name,
                step,
            )
            yield from ()

        return OpenInput(nothing().__next__, partial(dict, position), by_step=False)

    def _go_on(self, passes: Passes, name: str, step: int, position: Mapping[str, Any]) -> None:
        """Let ``passes`` count its elements, and begin after those that were drawn before."""
        drawn = position.get("drawn", 0)
        if self._given is None:
            length = position.get("length", passes.length)
            passes.count(Count())
            if 0 < drawn == length:  # whatever the epoch has now, it was done
                drawn = passes.length or drawn
            elif drawn and length != passes.length:
                _log.warning(
                    "the input %r skips or repeats elements: it had %s in an epoch until step %d, "
                    "and has %s now, of which it skips the first %d. Give it the batch size and "
                    "the data of before, or train on from the weights alone, with rh.InitFrom",
                    *(name, length, step, passes.length, drawn),
                )
            passes.skip(drawn)
            return
        passes.count(self._given)
        if drawn not in (0, self._given.elements):
            _log.warning(
                "the input %r starts over or skips elements: %d were drawn until step %d, its "
                "iterator has given %d, and cannot be moved. Give a list or another iterable, a "
                "function of the step, or an iterator with a state_dict",
                name,
                drawn,
                step,
                self._given.elements,
            )

    def peek(self) -> Any:
        """Return the first element, arranged, which will still be drawn.

        Raises:
            LookupError: If there is none, or if to look at it might change what is drawn.
        """
        if not is_container(self._source):
            raise LookupError("to iterate the source may draw random numbers or change it")
        for element in self._source:
            return element if self._arrange is None else self._arrange(element)
        raise LookupError("the source is empty")

    def _placed(self, part: Any, position: Mapping[str, Any] | None) -> Keeper | None:
        """Move ``part``, if it is stateful, to ``position``, or to where it was at first."""
        keeper = keeper_of(part)
        if keeper is None:
            return None
        if position is not None:
            # Not asked of the loader itself, which might start its workers to answer.
            self._first = part, position.get("first", position["state"])
            keeper.load(position["state"])
        elif self._first is None or self._first[0] is not part:
            self._first = part, keeper.save()
        else:
            keeper.load(self._first[1])
        return keeper


@dataclass(slots=True, eq=False)
class OpenInput:
    """An input in one session.

    Attributes:
        draw: Returns the next element, or raises StopIteration.
        position: Returns how far it has come, as ``Source.open`` takes it; None if that is unknown.
        by_step: Whether it comes from a function of the global step, and has no state.
    """

    draw: Callable[[], Any]
    position: Callable[[], dict[str, Any] | None]
    _: KW_ONLY
    by_step: bool

    def timed(self, spend: Callable[[float], None]) -> None:
        """Call ``spend`` with the seconds that each element takes, from now on."""
        draw = self.draw

        def timed_draw() -> Any:
            begin = clock.monotonic()
            try:
                return draw()
            finally:
                spend(clock.monotonic() - begin)

        self.draw = timed_draw

"""``Source``: where an input draws from, epoch after epoch, and its position for checkpoints.

*Stateful* is an object with ``state_dict`` and ``load_state_dict``, as torchdata's
``StatefulDataLoader`` is, or with ``get_state`` and ``set_state``, as grain's iterators are. Where
nothing is, and nothing goes by the step, elements are counted.
"""

from __future__ import annotations

import copy
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.errors import add_note
from runhooks.graph.generators import (
    GeneratorState,
    InputGenerators,
    generators_of,
    generators_used,
    holders,
    is_container,
)

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
        self._count = Count()
        self._goes_by_count = False
        self._ahead: deque[_Ahead] = deque()
        #: How many elements there are in this epoch; None if they do not say.
        self.length = _length(elements)
        #: The name to warn with if there is no element at all.
        self.empty: str | None = None
        #: The name to warn with if there are more or fewer than ``length``; None: not any more.
        self.named: str | None = None
        self._is_whole = True  # whether all elements of this epoch were counted here
        self._generators = generators
        self._random = random or {}
        if generators is not None and self._random:
            if keeper is None and done and getattr(elements, "persistent_workers", False):
                iter(elements)  # workers were started, and their seed drawn, in the first epoch
                _warn_of_order(elements)
            generators.go_to(self._random, "epoch")
            generators.begin_epoch()
        self._iterator: Iterator[Any] | None = None if is_between else self._iterate()
        self._is_fresh = is_between or (keeper is None and self._generators is not None)

    @property
    def keeper(self) -> Keeper | None:
        """What knows the position in this epoch, or None."""
        own, of_iterator = self._own_keeper, keeper_of(self._iterator)
        if own is None or of_iterator is None:
            return own or of_iterator
        # A loader tells where its newest iterator is, which may be that of an evaluation.
        return Keeper(of_iterator.get, own.set)

    @property
    def progress(self) -> Progress:
        """How far it has come in its epochs."""
        found_end = bool(self._ahead) and self._ahead[0].is_end
        return Progress(self._done, self._count.elements, self.length, found_end)

    @property
    def next_is_last(self) -> bool:
        """Whether the next element is the last one of this epoch; draws the one behind it, too."""
        self.look_ahead(2)
        return len(self._ahead) == 2 and self._ahead[1].is_end

    def go_by_count(self, count: Count) -> None:
        """Let ``count``, the number of elements of this epoch, be its position."""
        self._count, self._goes_by_count = count, True

    def skip(self, elements: int, ahead: int = 0) -> None:
        """Draw so many ``elements``, or as many as this epoch has; look ``ahead``, as before."""
        generators = self._generators
        if generators is not None and elements:
            generators.go_to(self._random, "first")
            self._begin_elements()
        if self._iterator is not None:
            for _ in itertools.islice(self._iterator, elements):
                self._count_one()
        for count in range(1, ahead + 1):
            if generators is not None:
                generators.go_to(self._random, f"ahead {count}")
            self.look_ahead(count)
        if generators is not None:
            generators.go_to(self._random)

    def note_drawn(self, elements: int) -> None:
        """Note that so many ``elements`` of this epoch were drawn before a stateful one is here."""
        self._count.elements = elements
        self._is_whole = not elements

    def look_ahead(self, elements: int) -> None:
        """Draw the next ``elements`` of this epoch, which are kept for runs, or find its end."""
        if self._done == self._epochs or self._iterator is None:
            return
        keeper = None if self._goes_by_count else self.keeper
        while len(self._ahead) < elements and not (self._ahead and self._ahead[-1].is_end):
            place = None if keeper is None else keeper.save()
            random = None if self._generators is None else self._generators.read()
            self._ahead.append(_Ahead(place, random, self._next))

    def position(self) -> dict[str, Any] | None:
        told: dict[str, Any] = {}
        has_ended = self._done == self._epochs
        keeper = None if self._goes_by_count else self.keeper
        if keeper is None and not self._goes_by_count and self._epochs == 1:
            return None
        told["drawn"] = self._count.elements
        if self.length is not None:
            told["length"] = self.length
        # Where an iterator has ended, the next one does not begin.
        if keeper is not None and (keeper is self._own_keeper or not has_ended):
            told["state"] = self._ahead[0].place if self._ahead else keeper.save()
            if self._first is not None:
                told["first"] = self._first
        if self._ahead:
            told["ahead"] = len(self._ahead)
        before = {f"ahead {n}": it.random for n, it in enumerate(self._ahead, 1) if it.random}
        if self._generators is not None and (random := self._generators.position(before)):
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
        try:
            element = self._ahead.popleft().take() if self._ahead else self._next()
        except StopIteration:
            if self.empty is not None:
                self._done += 1
                _log.warning("the input %r has no elements", self.empty)
                raise
            element = self._first_of_next_epoch()
        self._count_one()
        return element if self._arrange is None else self._arrange(element)

    def begin_next(self) -> None:
        """Begin the next epoch, if this one is at its end and there is another."""
        if self._iterator is None and self._done != self._epochs:
            self._begin_elements()
        elif self.progress.is_at_end:
            self.look_ahead(1)  # the length that a loader tells may be too small
            if self._ahead and self._ahead[0].is_end:
                self._ahead.clear()
                self._end_epoch()

    def _first_of_next_epoch(self) -> Any:
        """Return the first element of the next epoch that has one, or raise StopIteration."""
        while (iterator := self._end_epoch()) is not None:
            for element in iterator:
                return element
            if self._epochs is None:  # what is empty now may be so for ever
                break
        raise StopIteration

    def _end_epoch(self) -> Iterator[Any] | None:
        """Return the elements of the epoch that begins, or None at the end of the last one."""
        self._done += 1
        if self.length is not None and self._count.elements < self.length:
            self._warn_of_length("no more than")
        self._count.elements, self._is_whole = 0, True
        if self._done == self._epochs:
            return None
        self._iterator = self._begin_epoch()
        return self._iterator

    def _next(self) -> Any:
        if self._is_fresh:
            self._begin_elements()
        assert self._iterator is not None, "an epoch has begun"
        return next(self._iterator)

    def _count_one(self) -> None:
        self.empty = None
        self._count.elements += 1
        if self.length is not None and self._count.elements > self.length:
            self._warn_of_length("at least")

    def _warn_of_length(self, bound: str) -> None:
        if self.named is not None and self._is_whole:
            _log.warning(
                "the input %r has %s %d elements in an epoch, and its len() is %d: hooks that go "
                "by epochs act at the steps of len(). Correct its __len__, or leave that out",
                *(self.named, bound, self._count.elements, self.length),
            )
            self.named = None

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
        self.length = _length(self._elements)
        return iter(self._elements)


class Progress(NamedTuple):
    """How far an input has come in its epochs.

    Attributes:
        done: The epochs that were done when the present one began.
        drawn: The elements that were drawn in the present epoch.
        length: The elements of an epoch; None: unknown.
        found_end: Whether the present one has no further element, where a look ahead has told.
    """

    done: int
    drawn: int
    length: int | None
    found_end: bool = False

    @property
    def is_at_end(self) -> bool:
        """Whether the last element of an epoch was the last one that was drawn."""
        return self.found_end or (self.length is not None and 0 < self.length <= self.drawn)


class _Ahead:
    """The next element, or what is raised in its place, drawn before a run asks for it.

    Attributes:
        place: The state of a stateful input before that; None: it has none.
        random: The states of the generators before that.
        is_end: Whether there is none.
    """

    def __init__(self, place: Any, random: Any, draw: Callable[[], Any]) -> None:
        self.place = place
        self.random = random
        self._element: Any = None
        self._error: Exception | None = None
        try:
            self._element = draw()
        except Exception as error:  # noqa: BLE001 - raised in the run that asks for the element
            self._error = error
        self.is_end = isinstance(self._error, StopIteration)

    def take(self) -> Any:
        """Return the element, or raise what was raised."""
        if self._error is not None:
            raise self._error
        return self._element


@dataclass(slots=True, eq=False)
class Count:
    """A number of elements."""

    elements: int = 0


def _was_last(position: Mapping[str, Any]) -> bool:
    """Return whether the last element of an epoch had been drawn."""
    drawn: int = position.get("drawn", 0)
    return 0 < drawn == position.get("length")


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


def _warn_of_order(loader: Any) -> None:
    """Log that workers which draw the order of ``loader`` themselves draw another one now."""
    kinds = [kind.__name__ for _, it in holders(loader) for kind in type(it).__mro__]
    if "IterableDataset" in kinds:
        _log.warning(
            "the data go on in a later epoch of an IterableDataset in persistent workers, whose "
            "random numbers no checkpoint has: if it shuffles in them, its order is another one "
            "than without the stop. Leave persistent_workers out to resume exactly"
        )


class FunctionIterable:
    """What ``fn``, a function without arguments, returns; it is called in each iteration.

    The random generators that ``fn`` uses are attributes, as those of a loader are.
    """

    def __init__(self, fn: Callable[[], Iterable[Any]]) -> None:
        vars(self).update(generators_used(fn))
        self._fn = fn

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fn())


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
        known, done = position or {}, (position or {}).get("epoch", 0)
        if self._epochs is not None and done + _was_last(known) >= self._epochs:
            return self._at_end(name, step, known)
        place = position if position is not None and "state" in position else None
        try:
            source, generators, random = self._source, None, None
            if self._given is None and not callable(source):
                generators = generators_of(source)  # to ask for a state may draw from them
                random = known.get("random")
            keeper = self._placed(source, place)
            elements = source(step) if callable(source) else source
            keeper = keeper or self._placed(elements, place)
            first = None if keeper is None or self._first is None else self._first[1]
            passes = Passes(
                *(elements, keeper, first, self._epochs, done, "ended" in known),
                *(generators, random, self._arrange),
            )
            if keeper is None and (keeper := passes.keeper) and place is not None:
                keeper.load(place["state"])
            by_step = keeper is None and callable(source)
            passes.named = name
            if keeper is None and position is None:
                passes.empty = name
            if keeper is None and not by_step:
                self._go_on(passes, name, step, {} if place is not None else known)
            else:
                passes.note_drawn(known.get("drawn", 0))
                passes.skip(0, known.get("ahead", 0))
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
        way = passes if self.has_epochs else None
        return OpenInput(passes.draw, passes.position, by_step=by_step, passes=way)

    @property
    def is_generator(self) -> bool:
        """Whether it gives a random generator, and no data."""
        return isinstance(self._source, GeneratorState)

    def shares_place(self, other: Source) -> bool:
        """Return whether both are one stateful object, so that one draws on where the other is."""
        return self._source is other._source and keeper_of(self._source) is not None

    @property
    def has_epochs(self) -> bool:
        """Whether it is known when an epoch of it ends, and the next begins with the same data."""
        return self._given is None and not callable(self._source) and not self.is_generator

    @property
    def length(self) -> int | None:
        """The elements of an epoch, where it has epochs and tells; None: unknown."""
        return _length(self._source) if self.has_epochs else None

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
            passes.go_by_count(Count())
            if 0 < drawn == length:  # whatever the epoch has now, it was done
                drawn = passes.length or drawn
            elif drawn and length != passes.length:
                _log.warning(
                    "the input %r skips or repeats elements: it had %s in an epoch until step %d, "
                    "and has %s now, of which it skips the first %d. Give it the batch size and "
                    "the data of before, or train on from the weights alone, with rh.InitFrom",
                    *(name, length, step, passes.length, drawn),
                )
            passes.skip(drawn, position.get("ahead", 0))
            return
        passes.go_by_count(self._given)
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
        passes: Its way through its epochs; None: it has none.
    """

    draw: Callable[[], Any]
    position: Callable[[], dict[str, Any] | None]
    _: KW_ONLY
    by_step: bool = False
    passes: Passes | None = None

    def mapped(self, fn: Callable[[Any], Any]) -> None:
        """Give ``fn`` of each element, from now on."""
        draw = self.draw
        self.draw = lambda: fn(draw())

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

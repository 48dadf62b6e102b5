"""``Source``: where an input draws from, and the position that a checkpoint keeps.

*Stateful* is an object with ``state_dict`` and ``load_state_dict``, as torchdata's
``StatefulDataLoader`` is, or with ``get_state`` and ``set_state``, as grain's iterators are. Where
nothing is, and nothing goes by the step, elements are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from runhooks import clock
from runhooks.errors import add_note
from runhooks.graph.input_generators import generators_of, is_container
from runhooks.graph.keeper import Keeper, keeper_of
from runhooks.graph.passes import Count, Passes

_log = logging.getLogger("runhooks")


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


class OpenInput:
    """An input in one session.

    Attributes:
        draw: Returns the next element, or raises StopIteration.
        position: Returns how far it has come, as ``Source.open`` takes it; None if that is unknown.
        by_step: Whether it comes from a function of the global step, and has no state.
    """

    __slots__ = ("_peeked", "by_step", "draw", "position")

    def __init__(
        self,
        draw: Callable[[], Any],
        position: Callable[[], dict[str, Any] | None],
        *,
        by_step: bool,
    ) -> None:
        self.draw = draw
        self.by_step = by_step
        self.position = position
        self._peeked: _Peeked | None = None

    def peek(self) -> Any:
        """Return the element that is drawn next, and is still there for the run that draws it.

        Raises:
            StopIteration: If there are no more.
        """
        if self._peeked is None or self._peeked.is_drawn:
            self._peeked = _Peeked(self)
        return self._peeked.element

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


class _Peeked:
    """Puts an element back in front of those of ``opened``, whose position does not know of it."""

    def __init__(self, opened: OpenInput) -> None:
        self._opened = opened
        self._rest, self._position = opened.draw, opened.position
        place = opened.position()
        self.element = self._rest()
        self.is_drawn = False
        opened.draw, opened.position = self.draw, lambda: place

    def draw(self) -> Any:
        if self.is_drawn:
            return self._rest()
        self.is_drawn = True
        self._opened.position = self._position
        if self._opened.draw == self.draw:
            self._opened.draw = self._rest
        element, self.element = self.element, None
        return element

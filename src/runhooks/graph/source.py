"""``Source``: where an input draws from, and ``OpenInput``, which draws in one session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from runhooks import clock
from runhooks.errors import add_note
from runhooks.graph.generators import (
    GeneratorState,
    generators_of,
    generators_used,
    is_container,
    own_generators,
)
from runhooks.graph.passes import Count, Keeper, Passes, keeper_of, length_of

_log = logging.getLogger("runhooks")


def _was_last(position: Mapping[str, Any]) -> bool:
    drawn: int = position.get("drawn", 0)
    return 0 < drawn == position.get("length")


class FunctionIterable:
    """What ``fn`` returns, called in each iteration; the generators that it uses are attributes."""

    def __init__(self, fn: Callable[[], Iterable[Any]]) -> None:
        vars(self).update(generators_used(fn))
        self._fn = fn

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fn())


class Source:
    """The source of an input: an iterable, or a function of the step that returns one.

    Its position is that of the iterable, the function's result or the iterator, if one of these is
    stateful, else the number of elements drawn. ``epochs``: how often to go through it; None: for
    ever. ``arrange``: what to make of an element.
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[[int], Iterable[Any]],
        epochs: int | None = 1,
        arrange: Callable[[Any], Any] | None = None,
    ) -> None:
        self._source = source
        self.epochs = epochs
        self._arrange = arrange
        self._first: tuple[Any, Any] | None = None  # what was stateful, and where
        self._own: dict[str, Any] | None = None  # states of generators at first
        # What an iterator has given cannot be had again: counted across sessions.
        self._given = Count() if isinstance(source, Iterator) else None

    def begin(self) -> None:
        """Put the generators that belong to it back, for another session."""
        own = own_generators(self._source)
        if self._own is None:
            self._own = {name: it.get() for name, it in own.items()}
        for name in own.keys() & self._own.keys():
            own[name].set(self._own[name])

    def open(self, name: str, step: int, position: Mapping[str, Any] | None = None) -> OpenInput:
        """Return the input, open at ``position``, one of an ``OpenInput``.

        None: a stateful iterable goes back to where it was when it was first opened. A function is
        called with ``step``, the global step. Raises whatever the source raises.
        """
        known = position or {}
        done = known.get("epoch", 0)
        if self.epochs is not None and done + _was_last(known) >= self.epochs:
            return self._at_end(name, step, known)
        place = position if position is not None and "state" in position else None
        try:
            source, generators, random = self._source, None, {}
            if self._given is None and not callable(source):
                generators = generators_of(source)  # to ask for a state may draw from them
                random = known.get("random", {})
            keeper = self._placed(source, place)
            elements = source(step) if callable(source) else source
            keeper = keeper or self._placed(elements, place)
            first = None if keeper is None or self._first is None else self._first[1]
            passes = Passes(
                *(name, elements, keeper, first, self.epochs, done, "ended" in known),
                *(generators, random, self._arrange),
            )
            if keeper is None and (keeper := passes.keeper) and place is not None:
                keeper.load(place["state"])
            by_step = keeper is None and callable(source)
            passes.warns_if_empty = keeper is None and position is None
            if keeper is None and not by_step:
                self._go_on(passes, name, step, {} if place is not None else known)
            else:
                passes.note_drawn(known.get("drawn", 0))
                passes.skip(0, ahead=known.get("ahead", 0))
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
                *(name, step),
            )
        way = passes if self.has_epochs else None
        return OpenInput(passes.draw, passes.position, by_step=by_step, passes=way)

    @property
    def is_generator(self) -> bool:
        """Whether it gives a random generator instead of data."""
        return isinstance(self._source, GeneratorState)

    def shares_place(self, other: Source) -> bool:
        """Return whether both are one stateful object."""
        return self._source is other._source and keeper_of(self._source) is not None

    @property
    def has_epochs(self) -> bool:
        """Whether it can be gone through again."""
        return self._given is None and not callable(self._source) and not self.is_generator

    @property
    def length(self) -> int | None:
        return length_of(self._source) if self.has_epochs else None

    def _at_end(self, name: str, step: int, position: Mapping[str, Any]) -> OpenInput:
        generators = generators_of(self._source) if "random" in position else None
        if generators is not None:
            generators.go_to(position["random"])

        def place() -> dict[str, Any]:
            # Others draw from the generators, too.
            random = {} if generators is None else {"random": generators.position({})}
            return {**position, **random}

        def nothing() -> Iterator[Any]:
            _log.warning(
                "the input %r is at its end: the checkpoint of step %d was saved when all of it "
                "was drawn. To train on, give more epochs or another checkpoint_dir",
                *(name, step),
            )
            yield from ()

        return OpenInput(nothing().__next__, place, by_step=False)

    def _go_on(self, passes: Passes, name: str, step: int, position: Mapping[str, Any]) -> None:
        """Let ``passes`` count its elements, and begin after those drawn before."""
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
            passes.skip(drawn, position.get("failed", ()), position.get("ahead", 0))
            return
        passes.go_by_count(self._given)
        if drawn not in (0, self._given.elements):
            _log.warning(
                "the input %r starts over or skips elements: %d were drawn until step %d, and its "
                "iterator has given %d. Give an iterable, such as a list, a function of the step, "
                "or an iterator with a state_dict",
                *(name, drawn, step, self._given.elements),
            )

    def peek(self) -> Any:
        """Return the first element, arranged; LookupError: there is none, or none can be shown."""
        if not is_container(self._source):
            raise LookupError("to iterate the source may draw random numbers or change it")
        for element in self._source:
            return element if self._arrange is None else self._arrange(element)
        raise LookupError("the source is empty")

    def _placed(self, part: Any, position: Mapping[str, Any] | None) -> Keeper | None:
        """Move ``part``, if it is stateful, to ``position`` or where it was at first."""
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

    ``position`` returns how far it has come, for ``Source.open``; None: that is unknown.
    ``by_step``: it comes from a function of the global step, and has no state.
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

"""``Source``: where an input draws from; ``Epochs``: when an epoch of a session ends.

An epoch ends with the last element of the first input, if that is iterable again, or after
``steps_per_epoch`` steps, if given.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

from runhooks import clock
from runhooks.errors import add_note
from runhooks.graph.base import BaseGraph, GraphKeys
from runhooks.graph.generators import (
    GeneratorState,
    generators_of,
    generators_used,
    is_container,
    own_generators,
)
from runhooks.graph.nodes import Operation, Placement
from runhooks.graph.passes import Count, Keeper, Passes, Progress, keeper_of, length_of

_log = logging.getLogger("runhooks")

EPOCH = "epoch"


class FunctionIterable:
    """What ``fn`` returns in each iteration; the generators that it uses are attributes."""

    def __init__(self, fn: Callable[[], Iterable[Any]]) -> None:
        vars(self).update(generators_used(fn))
        self._fn = fn

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fn())


class Source:
    """The source of an input: an iterable, or a function of the step that returns one.

    Its position is that of the iterable, the function's result or the iterator, if one of these is
    stateful, else the number of elements drawn. ``epochs``: None for ever. ``arrange`` makes of an
    element what is drawn.
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
        self._first: tuple[Any, Any] | None = None  # what was stateful, where
        self._own: dict[str, Any] | None = None  # states of generators at first
        # What an iterator has given cannot be had again: counted across sessions.
        self._given = Count() if isinstance(source, Iterator) else None

    def begin(self) -> None:
        """Put its own generators back, for another session."""
        own = own_generators(self._source)
        if self._own is None:
            self._own = {name: it.get() for name, it in own.items()}
        for name in own.keys() & self._own.keys():
            own[name].set(self._own[name])

    def open(self, name: str, step: int, position: Mapping[str, Any] | None = None) -> OpenInput:
        """Return the input, open at ``position``, one of an ``OpenInput``.

        None: a stateful iterable goes back to where it was first. A function is called with
        ``step``. Raises whatever the source raises.
        """
        known = position or {}
        done, drawn = known.get("epoch", 0), known.get("drawn", 0)
        was_last = 0 < drawn == known.get("length")
        if self.epochs is not None and done + was_last >= self.epochs:
            return self._at_end(name, step, known)
        place = known if "state" in known else None
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
                passes.note_drawn(drawn)
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
                "the input %r starts over at step %d: the checkpoint has its position, and its "
                "source no load_state_dict or set_state",
                *(name, step),
            )
        way = passes if self.has_epochs else None
        return OpenInput(passes.draw, passes.position, by_step=by_step, passes=way)

    @property
    def is_generator(self) -> bool:
        return isinstance(self._source, GeneratorState)

    def shares_place(self, other: Source) -> bool:
        return self._source is other._source and keeper_of(self._source) is not None

    @property
    def has_epochs(self) -> bool:
        return self._given is None and not callable(self._source) and not self.is_generator

    @property
    def length(self) -> int | None:
        return length_of(self._source) if self.has_epochs else None

    def _at_end(self, name: str, step: int, position: Mapping[str, Any]) -> OpenInput:
        generators = generators_of(self._source) if "random" in position else None
        if generators is not None:
            generators.go_to(position["random"])

        def place() -> dict[str, Any]:
            # Others draw, too.
            random = {} if generators is None else {"random": generators.position({})}
            return {**position, **random}

        def nothing() -> Iterator[Any]:
            _log.warning(
                "the input %r is at its end, as it was in the checkpoint of step %d. To train on, "
                "give more epochs or another checkpoint_dir",
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
                    "and has %s now, of which it skips %d. Give it the batch size and the data of "
                    "before, or train on from the weights alone, with rh.InitFrom",
                    *(name, length, step, passes.length, drawn),
                )
            passes.skip(drawn, position.get("failed", ()), position.get("ahead", 0))
            return
        passes.go_by_count(self._given)
        if drawn not in (0, self._given.elements):
            _log.warning(
                "the input %r starts over or skips elements: %d were drawn until step %d, and its "
                "iterator has given %d. Give an iterable, a function of the step, or an iterator "
                "with a state_dict",
                *(name, drawn, step, self._given.elements),
            )

    def peek(self) -> Iterator[Any]:
        """Yield the first element, if there is one and that changes nothing."""
        return islice(self._source if is_container(self._source) else (), 1)

    def _placed(self, part: Any, position: Mapping[str, Any] | None) -> Keeper | None:
        keeper = keeper_of(part)
        if keeper is None:
            return None
        if position is not None:
            # A loader that is asked might start its workers.
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

    ``position`` returns how far it has come, for ``Source.open``; None: unknown. ``by_step``: it
    comes from a function of the global step, and has no state.
    """

    draw: Callable[[], Any]
    position: Callable[[], dict[str, Any] | None]
    _: KW_ONLY
    by_step: bool = False
    passes: Passes | None = None

    def mapped(self, fn: Callable[[Any], Any]) -> None:
        draw = self.draw
        self.draw = lambda: fn(draw())

    def timed(self, spend: Callable[[float], None]) -> None:
        """Call ``spend`` with the seconds that each element takes."""
        draw = self.draw

        def timed_draw() -> Any:
            begin = clock.monotonic()
            try:
                return draw()
            finally:
                spend(clock.monotonic() - begin)

        self.draw = timed_draw


def steps_per_epoch(graph: BaseGraph) -> int | None:
    """Return how many steps are an epoch of ``graph``; None: its data say."""
    return next(iter(graph.get_collection(GraphKeys.STEPS_PER_EPOCH)), None)


def epoch_input(graph: BaseGraph) -> Operation | None:
    op = next(iter(graph.get_collection(GraphKeys.EPOCH_INPUT)), None)
    return op if op is not None and op.args[0].has_epochs else None


def has_epochs(graph: BaseGraph) -> bool:
    return steps_per_epoch(graph) is not None or epoch_input(graph) is not None


def epoch_operation(graph: BaseGraph) -> Operation | None:
    """Return an operation whose value is the number of the epoch, from 1; None: it has no epochs.

    Drawn after the data, it begins the epoch of the step of the run; without a step, its argument
    is drawn instead. It is not added to the graph.
    """
    if not has_epochs(graph):
        return None
    data = epoch_input(graph)
    # Between what it needs and all that can be made of it.
    number = -0.5 if data is None else data.number + 0.5
    now = Operation(graph, "EpochNow", f"{EPOCH}/now", number, fn=None, placement=Placement.HOST)
    epoch = Operation(graph, "Epoch", EPOCH, number, fn=None, args=(now,), placement=Placement.HOST)
    now.outputs = epoch.outputs
    return epoch


class Epochs:
    """The epochs of one session: how many are done, and when the next one ends.

    ``position`` returns the open input of an operation, or where a checkpoint has left it;
    ``opened`` opens it. ``lock`` is held in looks ahead, which may move random generators.
    """

    def __init__(
        self,
        graph: BaseGraph,
        global_step: Callable[[], int | None],
        position: Callable[[Operation], OpenInput | Mapping[str, Any]] | None = None,
        opened: Callable[[Operation], OpenInput] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._steps = steps_per_epoch(graph)
        self._global_step = global_step
        self.input = epoch_input(graph) if position is not None else None
        self._position = position
        self._opened = opened
        self._lock = nullcontext() if lock is None else lock
        self._most: int | None = None if self.input is None else self.input.args[0].epochs
        self._looks_ahead = False

    @property
    def is_known(self) -> bool:
        return self._steps is not None or self.input is not None

    @property
    def number(self) -> int:
        """The number of the epoch that the last step belongs to, from 1; 0 before the first."""
        if self._steps is None:
            progress = self.progress
            return progress.done + (progress.drawn > 0)
        return math.ceil(self.done_at(self._global_step() or 0))

    def begun_by(self, step: int) -> int:
        """Return the number of the epoch of the step after ``step``, whose element was drawn."""
        return self.number if self._steps is None else step // self._steps + 1

    def done_at(self, step: int) -> Fraction:
        """Return how many epochs are done at ``step``: now, or when the next run has led to it.

        Without a length, look ahead from now on: only that finds the end.
        """
        if self._steps is not None:
            return Fraction(step, self._steps)
        self._looks_ahead = self._looks_ahead or self.progress.length is None
        return self._done_after(1 if step > (self._global_step() or 0) else 0)

    def step_at(self, epoch: float | Fraction) -> float:
        """Return the step at which ``epoch`` epochs are done; infinite where the data say."""
        if self._steps is None or epoch == math.inf:
            return math.inf
        return math.ceil(Fraction(epoch) * self._steps)

    def check(self, epoch: float | Fraction) -> None:
        """Look ahead from now on if need be; ValueError: for a part of one without a length."""
        if self._steps is not None or epoch == math.inf or self.progress.length is not None:
            return
        if epoch != int(epoch):
            raise ValueError(
                f"a hook is due after {float(epoch)} epochs, and an epoch of the data has no known "
                "length: give the graph, or rh.inputs, steps_per_epoch"
            )
        self._looks_ahead = True

    def draws_until(self, epoch: float | Fraction) -> float:
        """Return how many draws lead to the end of ``epoch`` epochs, of the present one, or of all.

        Without a length, it may be the next draw.
        """
        if self.input is None:
            return math.inf
        progress = self.progress
        target = math.inf if self._steps is not None else epoch
        if self._most is not None:
            target = min(target, self._most)
        if target == math.inf:
            return math.inf
        if progress.length is None:
            if not self._looks_ahead:
                return math.inf
            return 0 if self._done_after(0) >= target else 1
        done = progress.done + progress.is_at_end
        if not progress.is_inside:  # the next epoch may have another length
            return 1 if target > done else 0
        part: Fraction = min(Fraction(target) - progress.done, Fraction(1))
        return max(0, math.ceil(part * progress.length) - progress.drawn)

    def begun_for_all(self) -> Progress:
        """Begin the epoch of the next element; return its progress, which other ranks go by."""
        with self._lock:
            if (passes := self._passes() or self._open()) is not None:
                passes.others_go_by_length = True
                passes.begin_next()
            return self.progress

    @property
    def draws_left(self) -> int | None:
        if self._most is None or (progress := self.progress).length is None:
            return None
        return max(0, (self._most - progress.done) * progress.length - progress.drawn)

    @property
    def is_over(self) -> bool:
        """Whether all elements of all epochs were drawn, as far as is known."""
        if self._most is None:
            return False
        with self._lock:
            progress, passes = self.progress, self._passes()
            if progress.done + progress.is_at_end < self._most:
                return False
            if passes is not None and progress.done < self._most:
                passes.look_ahead(1)  # a loader may tell too small a length
                return passes.progress.found_end
            return True

    @property
    def end(self) -> str:
        assert self.input is not None
        passes = self._passes()
        if passes is not None and passes.failure is not None:
            return f"the input {self.input.name!r} {passes.failure}"
        return f"all epochs of the input {self.input.name!r} are done (epochs={self._most})"

    def _done_after(self, draws: int) -> Fraction:
        with self._lock:
            passes = self._passes()
            if passes is None and self._looks_ahead and (draws or self.progress.is_inside):
                passes = self._open()
            if draws and passes is not None:
                passes.begin_next()
            progress = self.progress
            if self._looks_ahead and passes is not None and progress.drawn:
                passes.look_ahead(1)
                progress = passes.progress
            done, drawn, length = progress.done, progress.drawn, progress.length
            if progress.is_at_end:
                done, drawn = done + 1, 0
            if length is None:
                looks = draws > 0 and self._looks_ahead
                return Fraction(done + (looks and passes is not None and passes.next_is_last))
            return done + Fraction(min(drawn + draws, length), length or 1)

    def _open(self) -> Passes | None:
        assert self.input is not None
        return None if self._opened is None else self._opened(self.input).passes

    def _found(self) -> OpenInput | Mapping[str, Any]:
        assert self.input is not None
        assert self._position is not None
        return self._position(self.input)

    def _passes(self) -> Passes | None:
        found = self._found()
        return found.passes if isinstance(found, OpenInput) else None

    @property
    def progress(self) -> Progress:
        found = self._found()
        if isinstance(found, OpenInput):
            if found.passes is not None:
                return found.passes.progress
            found = found.position() or {}
        assert self.input is not None
        length = found.get("length", self.input.args[0].length)
        return Progress(found.get("epoch", 0), found.get("drawn", 0), length)

"""When an epoch of a training ends, and ``"epoch"``, the tensor that says which one it is.

It ends with the last element of the first input, if that is iterable again; or every
``steps_per_epoch`` steps, if the program gives that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from typing import Any

from runhooks.graph.base import BaseGraph, GraphKeys
from runhooks.graph.nodes import Operation, Placement
from runhooks.graph.passes import Passes, Progress
from runhooks.graph.source import OpenInput, Source

EPOCH = "epoch"


def steps_per_epoch(graph: BaseGraph) -> int | None:
    """Return how many steps are an epoch of ``graph``; None: its data say."""
    return next(iter(graph.get_collection(GraphKeys.STEPS_PER_EPOCH)), None)


def epoch_input(graph: BaseGraph) -> Operation | None:
    """Return the input whose elements are the epochs of ``graph``, if any."""
    op = next(iter(graph.get_collection(GraphKeys.EPOCH_INPUT)), None)
    return op if op is not None and op.args[0].has_epochs else None


def has_epochs(graph: BaseGraph) -> bool:
    """Return whether it is known when an epoch of ``graph`` ends."""
    return steps_per_epoch(graph) is not None or epoch_input(graph) is not None


def epoch_operation(graph: BaseGraph) -> Operation | None:
    """Return an operation whose value is the number of the epoch, from 1; None: it has no epochs.

    It is drawn after the data, and begins the epoch of the step of the run; in runs without one,
    its argument is drawn in its place. A finalized graph has it, too: it is not added.
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
    ``opened`` opens it. ``lock`` is held in looks ahead, which may change random generators, whose
    states a run of another thread may be about to restore.
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
        self._most = None if self.input is None else self._source.epochs
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
                "length to be divided: give the graph, or rh.inputs, steps_per_epoch"
            )
        self._looks_ahead = True

    def draws_until(self, epoch: float | Fraction) -> float:
        """Return how many draws lead to the end of ``epoch`` epochs, of the present one, or of all.

        Where no length is known, it may be the next draw.
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
        """Begin the epoch of the next element, which a run is about to draw; return its progress.

        Other ranks go by its length: from now on, a shorter one is an error.
        """
        with self._lock:
            if (passes := self._passes() or self._open()) is not None:
                passes.others_go_by_length = True
                passes.begin_next()
            return self.progress

    @property
    def draws_left(self) -> int | None:
        """How many elements are left in all epochs; None: unknown."""
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
                passes.look_ahead(1)  # the length that a loader tells may be too small
                return passes.progress.found_end
            return True

    @property
    def end(self) -> str:
        """Why nothing is left, for the reason of a stop."""
        assert self.input is not None
        passes = self._passes()
        if passes is not None and passes.failure is not None:
            return f"the input {self.input.name!r} {passes.failure}"
        return f"all epochs of the input {self.input.name!r} are done (epochs={self._most})"

    @property
    def _source(self) -> Source:
        assert self.input is not None
        source: Source = self.input.args[0]
        return source

    def _done_after(self, draws: int) -> Fraction:
        with self._lock:
            passes = self._way(draws)
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

    def _way(self, draws: int) -> Passes | None:
        """Return the way of the input; if a run is about to draw, the next epoch has begun."""
        passes = self._passes()
        if passes is None and self._looks_ahead and (draws or self.progress.is_inside):
            passes = self._open()
        if draws and passes is not None:
            passes.begin_next()
        return passes

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
        """How far the data have come."""
        found = self._found()
        if isinstance(found, OpenInput):
            if found.passes is not None:
                return found.passes.progress
            found = found.position() or {}
        length = found.get("length", self._source.length)
        return Progress(found.get("epoch", 0), found.get("drawn", 0), length)

"""``SessionInputs``: the inputs of one session, and how far each has come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.contract import Snapshot
from runhooks.graph.base import GraphKeys
from runhooks.graph.epochs import EPOCH, Epochs
from runhooks.graph.graph import Graph
from runhooks.graph.nodes import Operation
from runhooks.graph.objects import Resized
from runhooks.graph.source import OpenInput, Source
from runhooks.session.states import VariableValues

_log = logging.getLogger("runhooks")

#: The prefix of the names of positions in a snapshot.
INPUT_STATES = "inputs/"


class SessionInputs:
    """Opens the inputs of ``graph`` when a run first needs them, where a checkpoint left them."""

    def __init__(
        self, graph: Graph, values: VariableValues, reset: Callable[[list[Any]], None]
    ) -> None:
        self._graph = graph
        self._values = values
        self._reset = reset
        self._epoch: int | None = None
        self.epochs = Epochs(
            graph,
            lambda: values.global_step,
            lambda op: self.opened.get(op) or self._positions.get(op.name, {}),
            self.at,
            values.lock,
        )
        self.opened: dict[Operation, OpenInput] = {}
        # Where inputs that are still to be opened were left, by name.
        self._positions: dict[str, Any] = {}
        # Rewound, these go on drawing from their generators.
        self._begun: set[Operation] = set()
        # Still to be opened, and without a position in the loaded snapshot.
        self._unplaced: set[Operation] = set()
        # Whether the first run that drew from an input made a step.
        self._drawn_by_steps: dict[Operation, bool] = {}
        self._warned_of_draws = False
        self._add_secs: Callable[[float], None] | None = None
        self.error: Exception | None = None

    def open(self, operations: Iterable[Operation]) -> None:
        for op in operations:
            if op not in self.opened:
                self._open(op)

    def at(self, op: Operation) -> OpenInput:
        """Return the input of ``op``, opened again if another thread has rewound it just now."""
        if op not in self.opened:
            self._values.check_open()
            self._open(op)
        return self.opened[op]

    def open_at_known_positions(self) -> None:
        """Open the inputs whose position is known.

        A loader may draw from a global generator then, whose own state is to be loaded later.
        """
        self.open(op for op in self._operations() if op.name in self._positions)

    def check_draws(self, operations: Iterable[Operation], *, makes_step: bool) -> None:
        """Warn, once, of an input that goes by the global step in runs that make no step.

        Raises ValueError if a run that makes a step draws from the data of an evaluation.
        """
        theirs = self._graph.get_collection(GraphKeys.EVALUATION_INPUTS) if makes_step else ()
        for op in operations:
            if op in theirs:
                raise ValueError(
                    f"a run that makes a step must not draw from {op.name!r}, the data of an "
                    "EvaluationHook, which would end the training: fetch what its test step "
                    "returns in an evaluation, with summary_op or one of its hooks"
                )
            by_steps = self._drawn_by_steps.setdefault(op, makes_step)
            if by_steps != makes_step and self.opened[op].by_step and not self._warned_of_draws:
                self._warned_of_draws = True
                _log.warning(
                    "the input %r goes by the global step, and runs that make no step draw from "
                    "it too: a resumed run would get other elements. Feed these runs, or give them "
                    "an input of their own, as an EvaluationHook has",
                    op.name,
                )

    def time(self, add_secs: Callable[[float], None]) -> None:
        if self._add_secs is None:
            self._add_secs = add_secs
            for opened in self.opened.values():
                opened.timed(add_secs)

    def rewind(self, operations: Iterable[Operation], to: Mapping[str, Any] | None) -> Any:
        """Let inputs begin anew, or where an earlier call has found them; return that."""
        before = {}
        for op in operations:
            opened, position = self.opened.pop(op, None), self._positions.pop(op.name, None)
            before[op.name] = position if opened is None else opened.position()
            self._unplaced.discard(op)
        self._positions.update(to or {})
        return before

    def positions(self) -> dict[str, Any]:
        now = {op.name: opened.position() for op, opened in self.opened.items()}
        positions = {**self._positions, **now}
        return {INPUT_STATES + name: it for name, it in positions.items() if it is not None}

    def load(self, snapshot: Snapshot | None) -> None:
        """Let all inputs begin anew, at their positions in ``snapshot`` if it is given.

        On another number of ranks, an epoch that was interrupted begins anew. Inputs that draw from
        random generators are opened at once, which sets these.
        """
        self.opened.clear()
        self._positions, self._unplaced = {}, set()
        if snapshot is None:
            return
        self._positions = {
            name.removeprefix(INPUT_STATES): state
            for name, state in snapshot.states.items()
            if name.startswith(INPUT_STATES)
        }
        if snapshot.resized is not None:
            self._resize(snapshot.resized)
        self._unplaced = {op for op in self._operations() if op.name not in self._positions}
        known = [op for op in self._operations() if "random" in self._positions.get(op.name, ())]
        self.open(known)

    def _resize(self, resized: Resized) -> None:
        """Keep the epochs that are done, and not the elements of one rank in the next."""
        step = self._values.global_step or 0
        epochs_name = None if self.epochs.input is None else self.epochs.input.name
        for name, position in list(self._positions.items()):
            if (drawn := position.get("drawn")) is None:
                continue
            is_done = 0 < drawn == position.get("length")
            epoch = position.get("epoch", 0) + is_done
            self._positions[name] = {"epoch": epoch}
            if "ended" in position:
                self._positions[name]["ended"] = True
            elif drawn and not is_done:
                if name == epochs_name:
                    self._positions.pop(EPOCH, None)  # so do its means
                _log.info(
                    "the input %r begins its epoch %d anew: %d ranks have saved the checkpoint of "
                    "step %d, and there are %d, each of which draws other elements",
                    *(name, epoch + 1, resized.saved, step, resized.size),
                )

    def check_resized(self, states: Mapping[str, Any], resized: Resized) -> None:
        for op in self._operations():
            if "state" in states.get(INPUT_STATES + op.name, ()):
                raise ValueError(
                    f"the input {op.name!r} cannot go on where it was: the checkpoint has its "
                    f"position on each of {resized.saved} ranks, and there are {resized.size}. "
                    "Give rh.inputs a function of the step, which returns what this rank draws "
                    f"from there on, or start {resized.saved} ranks"
                )

    def state_names(self) -> set[str]:
        own = {INPUT_STATES + op.name for op in self._operations()}
        return {*own, INPUT_STATES + EPOCH} if self.epochs.is_known else own

    def _draw_epoch(self) -> int:
        number = self.epochs.begun_by(self._values.global_step or 0)
        if number != self._epoch:  # in the first run, too: values may be of InitFrom
            self._epoch = number
            self._reset(self._graph.get_collection(GraphKeys.EPOCH_RESETS))
        return number

    def _operations(self) -> list[Operation]:
        return [op for op in self._graph.get_operations() if op.type == "Inputs"]

    def _open(self, op: Operation) -> None:
        if op.type == "Epoch":
            self._epoch = self._positions.pop(op.name, {}).get("number")
            self.opened[op] = OpenInput(
                self._draw_epoch, lambda: None if self._epoch is None else {"number": self._epoch}
            )
            return
        if op.type == "EpochNow":
            self.opened[op] = OpenInput(lambda: self.epochs.number, lambda: None)
            return
        source: Source = op.args[0]
        step = self._values.global_step or 0
        if op not in self._begun:
            self._begun.add(op)
            if op not in self._graph.get_collection(GraphKeys.EVALUATION_INPUTS):
                source.begin()
        opened = source.open(op.name, step, self._positions.get(op.name))
        self._positions.pop(op.name, None)
        if (put := self._graph.engine.put) is not None:
            opened.mapped(put)
        if self._add_secs is not None:
            opened.timed(self._add_secs)
        self.opened[op] = opened
        if op in self._unplaced and step and not opened.by_step:
            _log.info(
                "the input %r starts over: the checkpoint of step %d has no position for it; see "
                "rh.inputs for sources that keep theirs",
                op.name,
                step,
            )
        self._unplaced.discard(op)

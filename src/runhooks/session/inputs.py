"""``SessionInputs``: the inputs of one session, and how far each has come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.contract import Snapshot
from runhooks.graph.base import GraphKeys, Resized
from runhooks.graph.epochs import EPOCH, Epochs
from runhooks.graph.graph import Graph
from runhooks.graph.nodes import Operation
from runhooks.graph.source import OpenInput, Source
from runhooks.session.states import VariableValues

_log = logging.getLogger("runhooks")

#: The prefix of the names of their positions among the states in a snapshot.
INPUT_STATES = "inputs/"


class SessionInputs:
    """Opens the inputs of ``graph`` when a run first needs them, where a checkpoint left them.

    Args:
        graph: The graph.
        values: The variables of the session: inputs may go by its global step.
        reset: Does, in the first run of an epoch and before all else, what the graph asks for.
    """

    def __init__(
        self, graph: Graph, values: VariableValues, reset: Callable[[list[Any]], None]
    ) -> None:
        self._graph = graph
        self._values = values
        self._reset = reset
        self._epoch: int | None = None  # the one that was drawn last, where it is drawn
        #: The epochs of the training.
        self.epochs = Epochs(
            graph, lambda: values.global_step, self._place_of, self.at, values.lock
        )
        #: The inputs that are open, by their operation.
        self.opened: dict[Operation, OpenInput] = {}
        # Where inputs that are still to be opened were left, by the name of their operation.
        self._positions: dict[str, Any] = {}
        # Those that this session has opened: rewound, they go on drawing from their generators.
        self._begun: set[Operation] = set()
        # Inputs that the loaded snapshot has no position of, until they are opened.
        self._unplaced: set[Operation] = set()
        # Whether the runs that draw from an input make a step, as the first such run did.
        self._drawn_by_steps: dict[Operation, bool] = {}
        self._warned_of_draws = False
        self._add_secs: Callable[[float], None] | None = None
        #: What the first input that a run has drawn from has raised last.
        self.error: Exception | None = None

    def open(self, operations: Iterable[Operation]) -> None:
        """Open those of ``operations`` that are not open yet."""
        for op in operations:
            if op not in self.opened:
                self._open(op)

    def at(self, op: Operation) -> OpenInput:
        """Return the input of ``op``, opened again if another thread has rewound it just now.

        Raises:
            RuntimeError: If another thread has closed the session.
        """
        if op not in self.opened:
            self._values.check_open()
            self._open(op)
        return self.opened[op]

    def _place_of(self, op: Operation) -> OpenInput | Mapping[str, Any]:
        """Return the input of ``op`` where it is open, or else the position that it will have."""
        return self.opened.get(op) or self._positions.get(op.name, {})

    def open_at_known_positions(self) -> None:
        """Open the inputs whose position is known.

        A loader may draw from a global random generator when it is opened: this comes before the
        generator's own state is loaded.
        """
        self.open(op for op in self._operations() if op.name in self._positions)

    def check_draws(self, operations: Iterable[Operation], *, makes_step: bool) -> None:
        """Warn, once, of an input that goes by the global step in runs that make no step.

        Raises:
            ValueError: If a run that makes a step draws from the data of an evaluation.
        """
        if makes_step:
            self._check_not_of_evaluation(operations)
        for op in operations:
            by_steps = self._drawn_by_steps.setdefault(op, makes_step)
            if by_steps != makes_step and self.opened[op].by_step and not self._warned_of_draws:
                self._warned_of_draws = True
                _log.warning(
                    "the input %r goes by the global step, and runs that make no step draw from "
                    "it too: a resumed run would get other elements. Feed these runs, or give them "
                    "an input of their own, as an EvaluationHook has",
                    op.name,
                )

    def _check_not_of_evaluation(self, operations: Iterable[Operation]) -> None:
        theirs = self._graph.get_collection(GraphKeys.EVALUATION_INPUTS)
        for op in operations:
            if op in theirs:
                raise ValueError(
                    f"a run that makes a step must not draw from {op.name!r}, the data of an "
                    "EvaluationHook, which would end the training with these data: fetch what its "
                    "test step returns in an evaluation, with summary_op or one of its hooks"
                )

    def time(self, add_secs: Callable[[float], None]) -> None:
        """Call ``add_secs`` with the seconds that inputs take to give an element, from now on."""
        if self._add_secs is None:
            self._add_secs = add_secs
            for opened in self.opened.values():
                opened.timed(add_secs)

    def rewind(self, operations: Iterable[Operation], to: Mapping[str, Any] | None) -> Any:
        """Let these inputs begin anew, or where an earlier call has found them; return that."""
        before = {}
        for op in operations:
            opened, position = self.opened.pop(op, None), self._positions.pop(op.name, None)
            before[op.name] = position if opened is None else opened.position()
            self._unplaced.discard(op)
        self._positions.update(to or {})
        return before

    def positions(self) -> dict[str, Any]:
        """Return how far the inputs have come, by the name of the state in a snapshot."""
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
                    self._positions.pop(EPOCH, None)  # means and other states of it begin anew, too
                _log.info(
                    "the input %r begins its epoch %d anew: %d ranks have saved the checkpoint of "
                    "step %d, and there are %d, each of which draws other elements",
                    *(name, epoch + 1, resized.saved, step, resized.size),
                )

    def check_resized(self, states: Mapping[str, Any], resized: Resized) -> None:
        """Raise ValueError if an input cannot be given its position among another number of ranks.

        What a rank has drawn says nothing of what another number of them has to draw. An input that
        is a function of the global step needs no position.
        """
        for op in self._operations():
            if "state" in states.get(INPUT_STATES + op.name, ()):
                raise ValueError(
                    f"the input {op.name!r} cannot go on where it was: the checkpoint has its "
                    f"position on each of {resized.saved} ranks, and there are {resized.size}. "
                    "Give rh.inputs a function of the step, which returns what this rank draws "
                    f"from there on, or start {resized.saved} ranks"
                )

    def state_names(self) -> set[str]:
        """Return the names that the positions of all inputs have in a snapshot."""
        own = {INPUT_STATES + op.name for op in self._operations()}
        return {*own, INPUT_STATES + EPOCH} if self.epochs.is_known else own

    def close(self) -> None:
        """Let go of all that are open."""
        self.opened.clear()

    def _draw_epoch(self) -> int:
        number = self.epochs.begun_by(self._values.global_step or 0)
        if number != self._epoch:  # also in the first run, which may begin with values of InitFrom
            self._epoch = number
            self._reset(self._graph.get_collection(GraphKeys.EPOCH_RESETS))
        return number

    def _epoch_position(self) -> dict[str, Any] | None:
        return None if self._epoch is None else {"number": self._epoch}

    def _operations(self) -> list[Operation]:
        return [op for op in self._graph.get_operations() if op.type == "Inputs"]

    def _open(self, op: Operation) -> None:
        if op.type == "Epoch":
            self._epoch = self._positions.pop(op.name, {}).get("number")
            self.opened[op] = OpenInput(self._draw_epoch, self._epoch_position)
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

"""Hooks around the batches of a loop that a framework owns."""

from __future__ import annotations

import json
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from runhooks import arguments
from runhooks.bridges.batch_graph import SUMMARIES, BatchGraph, BatchSession
from runhooks.checkpoint.states import EncodedStates, decode, encode
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.errors import add_note, cause, described, good_ends
from runhooks.hooks import StepCounterHook, SummarySaverHook
from runhooks.hooks.base import SummaryWriter, step_of
from runhooks.hooks.metrics import EvaluatingHook, number
from runhooks.session.hook_list import HookList, caught, in_order, raise_first
from runhooks.session.hooked import Asked, LiveSession
from runhooks.session.scheduled_hook import noting_hook
from runhooks.trigger import Due, Timer, Trigger


def _to_text(states: Mapping[str, Any]) -> str:
    encoded = encode(states)
    arrays = {entry: b64encode(data.tobytes()).decode() for entry, data in encoded.arrays.items()}
    return json.dumps({"states": encoded.text.decode(), "arrays": arrays})


def _from_text(text: str) -> dict[str, Any]:
    try:
        parts = json.loads(text)
        arrays = {it: np.frombuffer(b64decode(x), np.uint8) for it, x in parts["arrays"].items()}
        return decode(EncodedStates(parts["states"].encode(), arrays))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the states of hooks in the checkpoint are damaged: {error}") from error


_log = logging.getLogger("runhooks")

_GRACE_SECS = 120.0  # that the threads of hooks have to stop


class HookedLoop:
    """A loop as its hooks see it: a session in which each batch of the framework is a run.

    A bridge calls ``open``, for each batch ``before_batch`` and ``after_batch``, then ``end``, or
    ``fail`` if an exception ends the loop; it may then open it again. Each raises what a hook
    raises, which closes the loop.
    """

    def __init__(
        self,
        graph: BatchGraph,
        hooks: Iterable[SessionRunHook] | None,
        output_dir: str | os.PathLike[str] | None,
        save_summaries_steps: int | None,
        log_step_count_steps: int | None,
    ) -> None:
        arguments.directory(output_dir=output_dir)
        arguments.not_negative(
            save_summaries_steps=save_summaries_steps, log_step_count_steps=log_step_count_steps
        )
        self.graph = graph
        self._given = in_order(hooks)
        self._output_dir = output_dir
        self._save_steps, self._count_steps = save_summaries_steps, log_step_count_steps
        self._hooks: HookList | None = None
        self._session: BatchSession | None = None
        self._states: Mapping[str, Any] = {}
        self._stop_reason: str | None = None
        self._asked: Asked | None = None
        self._caller = SessionRunArgs(graph.batch)
        self._at_end = ExitStack()

    @property
    def is_open(self) -> bool:
        return self._session is not None

    @property
    def is_asked(self) -> bool:
        """Whether a hook takes part in the batch that is being made."""
        return self._asked is not None

    @property
    def stop_reason(self) -> str | None:
        """Why the loop is to end; None: it goes on."""
        return self._stop_reason or (self._live.stop_reason if self.is_open else None)

    def check_processes(self, number: int) -> None:
        if number > 1:
            raise ValueError(
                f"hooks in a loop of {self.graph.title} work in one process, and this training has "
                f"{number}"
            )

    def open(self, step: int) -> bool:
        """Begin at ``step``; return whether the loop is to stop before its first batch."""
        if self.is_open:
            self.fail(RuntimeError(f"{self.graph.title} has left its loop without an end"))
        self._stop_reason, self._asked = None, None
        self._hooks = hooks = HookList([*self._own_hooks(), *self._given])
        self._at_end.enter_context(self.graph.in_use())
        try:
            with self.graph.as_default():
                hooks.begin()
                self.graph.finalize()
            self._session = session = BatchSession(self.graph, step)
            session.take_states(self._states)
            self._live = LiveSession(session)
            self._hooked = self._live.hooked
            with self.graph.as_default():
                hooks.start(self._live)
            if self._states:
                hooks.compare_states(session)
        except BaseException as error:
            self.fail(error)
            raise
        return self.stop_reason is not None

    def before_batch(self) -> None:
        if not self.is_open:  # closed by an error that the framework has caught
            return
        try:
            if self._live.coord.should_stop():
                self._live.coord.raise_requested_exception()
            if self._hooked.is_due():
                with self.graph.as_default():
                    self._ask()
        except BaseException as error:
            if not self._ends_well(error):
                raise

    def after_batch(self, step: int) -> bool:
        """Return whether the loop is to stop."""
        session = self._session
        if session is None:  # as in before_batch
            return True
        asked, self._asked = self._asked, None
        try:
            if asked is None:
                before = session.global_step or 0
                session.count(step)
                self._hooked.count_run(before)
            else:
                self._deliver(asked, session, step)
        except BaseException as error:
            if not self._ends_well(error):
                raise
        return self.stop_reason is not None

    def after_validation(self, metrics: Mapping[str, Any], is_own: bool = True) -> bool:
        """Let hooks act on ``metrics``; return whether the loop is to stop.

        One that the user makes, not ``is_own``, is ignored if it lacks metrics that hooks act on.
        """
        session = self._session
        validations = [it for it in self._given if isinstance(it, ValidationHook)]
        if session is None or not metrics or not validations:
            return self.stop_reason is not None
        try:
            with self.graph.as_default():
                for hook in validations:
                    hook.take(session, metrics, is_own)
                self._hooked.deliver_between_runs()
        except BaseException as error:
            if not self._ends_well(error):
                raise
        return self.stop_reason is not None

    def end(self) -> None:
        """End well: call ``end`` of every hook, then raise the first error."""
        session, hooks = self._session, self._hooks
        if session is None or hooks is None:
            return
        errors = caught(self._live.coord.raise_requested_exception)
        if errors:
            self.fail(errors[0])
            raise errors[0]
        self._hooks, self._states = None, session.attached_states()
        step = session.global_step
        with self.graph.as_default():
            errors = hooks.end(session)
        reason = self.stop_reason or f"{self.graph.title} has ended its loop"
        errors += self._close()
        _log.info("the loop has ended at step %s: %s", step, reason)
        raise_first(errors)

    def fail(self, error: BaseException) -> None:
        """End by ``error``, unless it has ended: call ``on_exception`` of every hook."""
        hooks, self._hooks, self._asked = self._hooks, None, None
        if hooks is None:
            return
        hooks.on_exception(self._session, error)
        self._close()
        _log.info("the loop has ended: %s", described(error))

    def state_dict(self) -> dict[str, Any]:
        states = self._states if self._session is None else self._session.attached_states()
        return {"hooks": _to_text(states)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._states = _from_text(state["hooks"])
        if self._session is not None:
            self._session.take_states(self._states)

    def _own_hooks(self) -> Iterator[SessionRunHook]:
        if self._output_dir is None:
            return
        if self._count_steps:
            yield StepCounterHook(self._count_steps, output_dir=self._output_dir)
        if self._save_steps:
            summary = self.graph[SUMMARIES]
            yield SummarySaverHook(
                self._save_steps, output_dir=self._output_dir, summary_op=summary
            )

    def _ask(self) -> None:
        asked = self._hooked.ask(self._caller)
        requests = asked.turn.requests_of(asked.requests)
        for hook, request in requests.items():
            with noting_hook(hook.name, "before_run"):
                if request.feed_dict:
                    raise ValueError(
                        f"feed_dict must be empty, got {list(request.feed_dict)}: a hook cannot "
                        f"feed the batches of {self.graph.title}"
                    )
                if request.fetches is not None:
                    self.graph.check(request.fetches)
        self.graph.prepare([it.fetches for it in requests.values() if it.fetches is not None])
        self._asked = asked

    def _deliver(self, asked: Asked, session: BatchSession, step: int) -> None:
        try:
            with self.graph.as_default():
                self._hooked.complete(asked, lambda fetches, *_: session.run_batch(fetches, step))
        finally:
            self.graph.release()

    def _ends_well(self, error: BaseException) -> bool:
        """Whether ``error`` is the end of an input, which stops the loop; else fail."""
        if isinstance(error, good_ends()):
            self._stop_reason = cause(error)
            return True
        self.fail(error)
        return False

    def _close(self) -> list[BaseException]:
        session, self._session = self._session, None
        errors = [] if session is None else caught(lambda: self._live.close(_GRACE_SECS))
        self.graph.release()
        self._at_end.close()
        return [it for it in errors if not isinstance(it, good_ends())]


class ValidationHook(EvaluatingHook):
    """Collects the metrics of the validations that a framework runs, for use with a bridge.

    Pass ``metric(name)`` to other hooks, as of an ``EvaluationHook``. A metric that is no single
    number is left out.

    Args:
        output_dir: Where to write the metrics, without a ``summary_writer``.
        summary_writer: The writer.
        hook_name: As in ``SessionRunHook``.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        hook_name: str | None = None,
    ) -> None:
        # Its ``end`` does nothing: it never evaluates by itself.
        never = Timer(Trigger(at_end=True))
        super().__init__(never, output_dir, summary_writer, hook_name)
        self._metrics: Mapping[str, float] = {}
        self._is_new = False

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._is_new = False
        super().after_create_session(session, coord)

    def take(self, session: RawSession, metrics: Mapping[str, Any], is_own: bool) -> None:
        """Take the metrics of a validation at the current step; see ``after_validation``."""
        if is_own or self._wanted <= metrics.keys():
            self._metrics, self._is_new = self._numbers(metrics), True
            self._evaluate_in_training(session, None)

    def next_due(self) -> Due | None:
        return Due(step=self.evaluated_step or 0) if self._is_new else Due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._is_new = step_of(run_context.session) != self.evaluated_step

    def end(self, session: RawSession) -> None:
        pass

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for name, value in metrics.items():
            try:
                found[name] = number(name, value)
            except (TypeError, ValueError) as error:
                if name in self._wanted:
                    add_note(error, f"hooks act on this metric of {self.title}")
                    raise
        return found

    def _run_evaluation(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> tuple[Mapping[str, float], int]:
        return self._metrics, 1


class LoopHooks:
    """The base of each ``Hooks``: the hooks of a session in a framework's loop.

    Args:
        hooks: The hooks, as for ``MonitoredTrainingSession``.
        output_dir: Where to write loss, metrics, learning rate and steps per second; None: nowhere.
        save_summaries_steps: Steps from one summary to the next; None or 0: there is none.
        log_step_count_steps: The same for steps per second.

    Raises:
        TypeError: If ``hooks`` is not a list of hooks.
        ValueError: For a negative number; before the first batch, for a hook that feeds values.
        RuntimeError: Before the first batch, for a hook that saves checkpoints.
    """

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        save_summaries_steps: int | None = 100,
        log_step_count_steps: int | None = 100,
    ) -> None:
        super().__init__()
        self._graph = self._make_graph()
        self._loop = HookedLoop(
            self._graph, hooks, output_dir, save_summaries_steps, log_step_count_steps
        )

    def _make_graph(self) -> BatchGraph:
        raise NotImplementedError

    @property
    def graph(self) -> BatchGraph:
        """The graph of what hooks may fetch, and add to."""
        return self._graph

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the hooks, for checkpoints."""
        return self._loop.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned."""
        self._loop.load_state_dict(state_dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._loop.fail(error)

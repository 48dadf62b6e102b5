"""What hooks share: their session's step and log, where they write, their timers and tensors."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from runhooks import clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.events.place import rank_folder
from runhooks.graph.base import BaseGraph, Framework, Log, get_default_graph
from runhooks.graph.build import get_global_step
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.sources import has_epochs
from runhooks.ranks import current_group
from runhooks.summary import FileWriterCache, SessionLog
from runhooks.summary.file_writer import mark_start
from runhooks.summary.ops import is_summary
from runhooks.summary.writer import AnyWriter, adapted
from runhooks.trigger import Due, Timer, no_epochs


def required_global_step(hook: SessionRunHook) -> Variable:
    """Return the global step of the default graph; RuntimeError if it has none."""
    global_step = get_global_step()
    if global_step is None:
        cure = "call train.get_or_create_global_step() before the session is made"
        if not get_default_graph().get_operations():
            cure = "the default graph is empty; enter yours, with graph.as_default()"
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}: {cure}")
    return global_step


def step_of(session: RawSession) -> int:
    """Return the global step of a session whose graph has one, without a run of our sessions."""
    step = session_of(session).global_step
    assert step is not None, "begin() made sure that the graph has a global step"
    return step


def next_step_of(run_context: SessionRunContext) -> int:
    """Return the global step that a run is expected to lead to, without a run."""
    # TensorFlow's own context does not have it.
    expected: int | None = getattr(run_context, "next_step", None)
    return step_of(run_context.session) + 1 if expected is None else expected


def log_of(session: RawSession | None) -> Log:
    """Return the logger of the framework of ``session``; ours if there is none."""
    return Framework.log if session is None else session_of(session).engine.log


@contextmanager
def not_training(session: RawSession | None) -> Iterator[None]:
    """Do not count the ``with`` block as training or input; blocks may be nested."""
    if session is None:
        yield
        return
    raw, start = session_of(session), clock.monotonic()
    before, input_secs = raw.non_training_secs, raw.input_secs
    try:
        yield
    finally:
        raw.non_training_secs = before + clock.monotonic() - start
        raw.input_secs = input_secs


def acts_here(hook: SessionRunHook) -> bool:
    """Return whether a hook with ``asks_on_all`` acts on this rank."""
    return current_group().is_chief or hook.runs_on == "all"


#: As hooks take it; see ``summary.adapted``.
SummaryWriter: TypeAlias = AnyWriter


class SummaryOutput:
    """Writes for one hook, with a given writer or that of a directory, if any."""

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output_dir = output_dir if summary_writer is None else None
        self._given: Any = summary_writer
        self.writer: Any = None if summary_writer is None else adapted(summary_writer)
        self._is_others = self.writer is not summary_writer
        self._message: Callable[[Any], Any] = lambda message: message

    @property
    def has_place(self) -> bool:
        return self._output_dir is not None or self._given is not None

    def open(self, on_each_rank: bool = False) -> None:
        """Get the writer, in ``begin``.

        With ``on_each_rank``, other ranks write, too, to ``rank-1`` and so on.
        """
        if not on_each_rank and not current_group().is_chief:
            self.writer = None
        elif self._output_dir is not None:
            self._given = FileWriterCache.get(self._output_dir)
            directory = rank_folder(self._output_dir)
            get_default_graph().engine.share_event_file(self._given, directory)
            self.writer = adapted(self._given)
        elif self._is_others:  # it may know only its framework's messages
            self._message = get_default_graph().engine.message

    def start(self, session: RawSession) -> None:
        """Write the graph, to a directory, and that a session starts; once for all hooks."""
        if self.writer is None:
            return
        if self._output_dir is not None:
            self.writer.graph(session.graph)
        mark_start(session_of(session), step_of(session), self._given, self.add_session_log)

    def add_session_log(self, session_log: SessionLog, step: int) -> None:
        if self.writer is not None:
            self.writer.add_session_log(self._message(session_log), step)

    def add_summary(self, summary: Any, step: int) -> None:
        if self.writer is not None:
            self.writer.add_summary(self._message(summary), step)

    def flush(self) -> None:
        if self.writer is not None:
            self.writer.flush()


class _TimerHook(SessionRunHook):
    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def begin(self) -> None:
        required_global_step(self)
        if self._timer.trigger.every_epochs is not None and not has_epochs(get_default_graph()):
            raise no_epochs(type(self).__name__)
        super().begin()
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session), session_of(session).epochs)


class PeriodicHook(_TimerHook):
    """Acts when it is due; its timer starts over in each session."""

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.reset()
        super().after_create_session(session, coord)

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._timer.should_trigger_for_step(step_of(run_context.session)):
            self._act(run_context.session)

    def end(self, session: RawSession) -> None:
        if self._timer.should_trigger_at_end(step_of(session)):
            self._act(session)

    def _act(self, session: RawSession) -> None:
        """Act now; a subclass calls this, too."""
        self._timer.update_last_triggered_step(step_of(session))


class TimedHook(_TimerHook):
    """Keeps its timer in checkpoints.

    It has no ``next_due``: a session heeds only one beside ``before_run`` and ``after_run``.
    """

    def _count_from_start(self, session: RawSession, step: int) -> None:
        """Start the timer; it counts from ``step`` unless it has triggered before."""
        self._timer.start(step, session_of(session).epochs)
        if self._timer.last_triggered_step() is None:
            self._timer.update_last_triggered_step(step)

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)


class FetchingHook(TimedHook):
    """Takes the values of ``tensors``, if there are any, when its timer triggers."""

    def __init__(self, timer: Timer, tensors: Mapping[str, Any] | Iterable[Any]) -> None:
        super().__init__(timer)
        self._tensors = NamedTensors(tensors)
        self._request: SessionRunArgs | None = None

    def begin(self) -> None:
        super().begin()
        fetches = self._tensors.fetches()
        self._request = SessionRunArgs(fetches) if fetches else None

    def next_due(self) -> Due | None:
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        is_due = self._timer.should_trigger_for_step(next_step_of(run_context))
        return self._request if is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session, results = run_context.session, run_values.results
        step = step_of(session)
        has_all = results is not None or self._request is None
        if has_all and self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._take(session, step, results)

    @abstractmethod
    def _take(self, session: RawSession, step: int, values: Any) -> None:
        """Act on the values by key, after the run that has led to ``step``."""


class TensorFlowHook(SessionRunHook):
    """Has the private names of TensorFlow's class, for subclasses."""

    def begin(self) -> None:
        self._global_step_tensor = required_global_step(self)


class SummaryWritingHook(TensorFlowHook):
    _output: SummaryOutput

    @property
    def _summary_writer(self) -> Any:
        return self._output.writer

    @_summary_writer.setter
    def _summary_writer(self, writer: Any) -> None:
        self._output = SummaryOutput(summary_writer=writer)
        self._output.open()


class StepReadingHook(TensorFlowHook):
    """Gives ``after_run`` of a subclass the step as ``run_values.results``, as in TensorFlow."""

    _steps_per_run = 1

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        is_ours = type(self).after_run.__module__.startswith("runhooks.hooks.")
        return None if is_ours else SessionRunArgs(self._global_step_tensor)

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Called by TensorFlow's loops."""
        self._steps_per_run = steps_per_run


class NamedTensors:
    """Tensors or their names: a dict by label, or one or a list."""

    def __init__(self, tensors: Mapping[str, Any] | Iterable[Any]) -> None:
        if isinstance(tensors, str | Tensor | Operation):
            tensors = [tensors]
        if not isinstance(tensors, Iterable):
            raise TypeError(f"tensors must be a dict or a list, got {tensors!r}")
        #: Labels or tensors; in the order of a list, where one may occur twice.
        self.listed: list[Any] = sorted(tensors) if isinstance(tensors, Mapping) else list(tensors)
        given = tensors if isinstance(tensors, Mapping) else {key: key for key in self.listed}
        self.by_key: dict[Any, Any] = {key: given[key] for key in self.listed}

    def fetches(self) -> dict[Any, Any]:
        """Return the tensors by key: a label, or an element of the list."""
        graph, found = get_default_graph(), {}
        for key, part in self.by_key.items():
            element = graph.as_graph_element(part)
            found[key], *others = outputs_of("tensors", element)
            if others:
                raise ValueError(
                    f"tensors: {element.name!r} is ambiguous, an operation with {len(others) + 1} "
                    f"outputs: name one of them, such as {element.name + ':0'!r}"
                )
        return found

    def labelled(self, values: Mapping[Any, Any]) -> list[tuple[str, Any]]:
        """Return labels and ``values``, in order."""
        return [(str(getattr(key, "name", key)), values[key]) for key in self.by_key]


def outputs_of(argument: str, element: Any) -> tuple[Any, ...]:
    """Return the outputs, one at least, of an operation, or a tensor as the only one."""
    if is_summary(element):
        raise ValueError(
            f"{argument} must not be a summary, got {element.name!r}: give the tensor that the "
            "summary is made of"
        )
    # On every engine, a tensor has no outputs.
    outputs: tuple[Any, ...] = tuple(getattr(element, "outputs", (element,)))
    if not outputs:
        raise ValueError(f"{argument}: the operation {element.name!r} has no value: give a tensor")
    return outputs


_AT_END_FIX = (
    "at the end nothing can be fed, drawn or changed: if the last step is known, give "
    "Trigger(on_steps=[last_step]) instead of at_end"
)


def check_for_end(graph: BaseGraph, fetches: Any) -> None:
    """Raise ValueError if ``fetches`` cannot be computed at the end."""
    try:
        graph.check_run(fetches)
    except ValueError as error:
        raise ValueError(f"at_end: {error}; {_AT_END_FIX}") from None
    effects = graph.effects_of(fetches)
    changed = [op.assigns.op.name for op in effects.assignments]
    changed += sorted(op.name for op in effects.steps)
    if effects.inputs:
        problem = f"draws from the input {effects.inputs[0].name!r}"
    elif changed:
        problem = f"changes {changed[0]!r}"
    elif effects.captures:
        name = min(op.name for op in effects.captures)
        problem = f"captures {name!r} during a step"
    else:
        return
    raise ValueError(f"at_end: the value to compute at the end {problem}; {_AT_END_FIX}")

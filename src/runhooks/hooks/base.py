"""What hooks share: the step and log of their session, where they write, their timer and names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
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
from runhooks.graph.base import Framework, Log, get_default_graph
from runhooks.graph.build import get_global_step
from runhooks.graph.epochs import has_epochs
from runhooks.graph.nodes import Variable
from runhooks.ranks import current_group
from runhooks.summary import FileWriterCache, SessionLog
from runhooks.summary.file_writer import mark_start
from runhooks.summary.writer import AnyWriter, adapted
from runhooks.trigger import Due, Timer, no_epochs


def required_global_step(hook: SessionRunHook) -> Variable:
    """Return the global step of the default graph, for the ``begin`` of a hook that needs one.

    Raises:
        RuntimeError: If the graph has none; the message names the hook.
    """
    global_step = get_global_step()
    if global_step is None:
        cure = "call train.get_or_create_global_step() before the session is made"
        if not get_default_graph().get_operations():
            cure = "the default graph is empty; enter yours, with graph.as_default()"
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}: {cure}")
    return global_step


def required_epochs(hook: SessionRunHook, timer: Timer) -> None:
    """Check that the default graph has epochs, if ``timer`` goes by them; for ``begin``.

    Raises:
        ValueError: If nothing says when an epoch ends; the message names the hook.
    """
    if timer.trigger.every_epochs is not None and not has_epochs(get_default_graph()):
        raise no_epochs(type(hook).__name__)


def step_of(session: RawSession) -> int:
    """Return the global step of a session whose graph has one; makes no run of our sessions."""
    step = session_of(session).global_step
    assert step is not None, "begin() made sure that the graph has a global step"
    return step


def step_or_none(session: RawSession) -> int | None:
    """Return the global step of a session; None if its graph has none."""
    return session_of(session).global_step


def next_step_of(run_context: SessionRunContext) -> int:
    """Return the global step that a run is expected to lead to; makes no run."""
    # TensorFlow's own context does not have it.
    expected: int | None = getattr(run_context, "next_step", None)
    return step_of(run_context.session) + 1 if expected is None else expected


def log_of(session: RawSession | None) -> Log:
    """Return the logger of the framework that runs ``session``; ours if ``session`` is None.

    Users who have set TensorFlow's log level have set it for TensorFlow's hooks too.
    """
    return Framework.log if session is None else session_of(session).engine.log


@contextmanager
def not_training(session: RawSession | None) -> Iterator[None]:
    """Count the ``with`` block as time that ``session`` does not spend on training.

    Nested blocks are counted once. The time that inputs take inside the block is not counted as
    waiting for the input of training.
    """
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
    """Return whether ``hook`` acts on this rank, and does not only ask, with the chief, for values.

    For hooks that have ``asks_on_all``.
    """
    return current_group().is_chief or hook.runs_on == "all"


#: A writer of summaries as hooks take it; see ``summary.adapted``.
SummaryWriter: TypeAlias = AnyWriter


class SummaryOutput:
    """Writes for one hook: with a given writer, with that of a directory, or nowhere.

    A writer of another library or of the user's own gets messages of the framework whose graph it
    is, if the framework has any: the writer may not know others.

    Args:
        output_dir: A directory, whose writer all hooks of the process share. Ignored if a
            ``summary_writer`` is given.
        summary_writer: The writer. With neither, what is added is dropped.

    Raises:
        TypeError: If ``summary_writer`` cannot write summaries.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output_dir = output_dir if summary_writer is None else None
        self._given: Any = summary_writer
        self._writer: Any = None if summary_writer is None else adapted(summary_writer)
        self._is_others = self._writer is not summary_writer
        self._message: Callable[[Any], Any] = lambda message: message

    @property
    def has_place(self) -> bool:
        """Whether there is a directory or a writer to write to."""
        return self._output_dir is not None or self._given is not None

    @property
    def writer(self) -> Any:
        """The writer in use; None if there is none."""
        return self._writer

    def open(self, on_each_rank: bool = False) -> None:
        """Get the writer; for a hook's ``begin``.

        Args:
            on_each_rank: Whether a rank other than the chief writes, too: to a directory of its
                own, ``rank-1`` inside the directory of the chief.
        """
        if not on_each_rank and not current_group().is_chief:
            self._writer = None
        elif self._output_dir is not None:
            self._given = FileWriterCache.get(self._output_dir)
            directory = rank_folder(self._output_dir)
            get_default_graph().engine.share_event_file(self._given, directory)
            self._writer = adapted(self._given)
        elif self._is_others:
            self._message = get_default_graph().engine.message

    def start(self, session: RawSession) -> None:
        """Write that a session starts, unless it is written; to a directory also the graph, once.

        Of all hooks that share a writer the first one writes this.
        """
        if self._writer is None:
            return
        if self._output_dir is not None:
            self._writer.graph(session.graph)
        mark_start(session_of(session), step_of(session), self._given, self.add_session_log)

    def add_session_log(self, session_log: SessionLog, step: int) -> None:
        """Add ``session_log`` at ``step``."""
        if self._writer is not None:
            self._writer.add_session_log(self._message(session_log), step)

    def add_summary(self, summary: Any, step: int) -> None:
        """Add ``summary`` at ``step``."""
        if self._writer is not None:
            self._writer.add_summary(self._message(summary), step)

    def flush(self) -> None:
        """Return when all that was added is written."""
        if self._writer is not None:
            self._writer.flush()


class PeriodicHook(SessionRunHook):
    """The base of hooks that act when they are due; their timer starts over in each session.

    Args:
        timer: Says when they are due.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def begin(self) -> None:
        required_global_step(self)
        required_epochs(self, self._timer)
        super().begin()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.reset()
        self._timer.start(step_of(session), session_of(session).epochs)

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._timer.should_trigger_for_step(step_of(run_context.session)):
            self._act(run_context.session)

    def end(self, session: RawSession) -> None:
        if self._timer.should_trigger_at_end(step_of(session)):
            self._act(session)

    def _act(self, session: RawSession) -> None:
        """Act now; a subclass does it, and calls this method too."""
        self._timer.update_last_triggered_step(step_of(session))


class TimedHook(SessionRunHook):
    """A hook that keeps its timer in checkpoints, and nothing else.

    It has no ``next_due``: a session heeds the one that stands beside ``before_run`` and
    ``after_run`` in a class.

    Args:
        timer: Says when the hook acts.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def begin(self) -> None:
        required_global_step(self)
        required_epochs(self, self._timer)
        super().begin()
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session), session_of(session).epochs)

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)


class TensorFlowHook(SessionRunHook):
    """The base of hooks that TensorFlow has, too, and that programs have extended.

    A subclass finds the private names that it knows from TensorFlow's class.
    """

    def begin(self) -> None:
        self._global_step_tensor = required_global_step(self)


class SummaryWritingHook(TensorFlowHook):
    """The base of those that write summaries, with ``_output``."""

    _output: SummaryOutput

    @property
    def _summary_writer(self) -> Any:
        return self._output.writer

    @_summary_writer.setter
    def _summary_writer(self, writer: Any) -> None:
        self._output = SummaryOutput(summary_writer=writer)
        self._output.open()


class StepReadingHook(TensorFlowHook):
    """The base of those whose TensorFlow class fetches the global step in every run.

    A subclass with an ``after_run`` of its own gets the step as ``run_values.results``.
    """

    _steps_per_run = 1

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        own = type(self).after_run.__module__
        is_ours = own.startswith("runhooks.hooks.")
        return None if is_ours else SessionRunArgs(self._global_step_tensor)

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Note it for subclasses; TensorFlow's loops call it. Here the step is always known."""
        self._steps_per_run = steps_per_run

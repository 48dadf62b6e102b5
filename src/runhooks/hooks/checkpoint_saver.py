"""``CheckpointSaverHook`` and its listeners."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from runhooks import arguments
from runhooks.checkpoint import BackgroundSave, DirectoryLock, KeepBest, Saver, save_under_way
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.errors import add_note
from runhooks.events.place import inside
from runhooks.events.writing.background import settle_all
from runhooks.graph.base import GraphKeys, get_default_graph
from runhooks.hooks.base import (
    StepReadingHook,
    SummaryOutput,
    SummaryWritingHook,
    TimedHook,
    log_of,
    not_training,
    step_of,
)
from runhooks.ranks import current_group
from runhooks.session.scaffold import opener_of
from runhooks.summary import SessionLog, SessionStatus
from runhooks.trigger import Due, Trigger, earliest, tensorflow_timer_of


class CheckpointSaverListener:
    """Base class of what a ``CheckpointSaverHook`` calls, as in ``tf.compat.v1.train``."""

    def begin(self) -> None:
        """Called in ``begin`` of the hook; may add to the default graph."""

    def before_save(self, session: RawSession, global_step_value: int) -> None:
        """Called before a checkpoint of that step is saved."""

    def after_save(self, session: RawSession, global_step_value: int) -> bool | None:
        """Called when the checkpoint is on disk; return True to ask the loop to stop.

        With an asynchronous saver ``session`` may be some steps ahead.
        """
        return None

    def end(self, session: RawSession, global_step_value: int) -> None:
        """Called at the end, after the last checkpoint."""


class _Save(NamedTuple):
    """A save that listeners have not been told of; ``background`` is None if it is done."""

    step: int
    path: str
    background: BackgroundSave | None


class _State(NamedTuple):
    """What a checkpoint holds: no other one of the same is saved."""

    step: int
    changes: int
    best: Mapping[str, float]  # the metrics by which it is among the best


class CheckpointSaverHook(TimedHook, StepReadingHook, SummaryWritingHook):
    """Saves a checkpoint when a session starts, every so often, and at the end; each step once.

    As in ``tf.compat.v1.train``. Checkpoints are ``<checkpoint_dir>/<checkpoint_basename>-<step>``.
    A step that the session was restored from, or that another such hook has saved, is not saved
    again, unless hooks have changed it as the session opened; nor is a state in which
    ``NanTensorHook`` has found NaN, or one at the end if ranks have ended at different steps.

    All event files of the process are flushed first; if that fails, the error is raised after the
    save. With ``Saver(asynchronous=True)``, listeners are called when the checkpoint is on disk; if
    writing fails, the error is raised after the next run. The next save and the end wait for the
    previous save.

        hooks = [rh.CheckpointSaverHook("runs/a", save_steps=1000, saver=rh.Saver(max_to_keep=3))]

    Args:
        checkpoint_dir: The directory of the checkpoints.
        save_secs: Seconds from one checkpoint to the next.
        save_steps: Steps from one checkpoint to the next.
        saver: The saver. Without it and ``scaffold``: the one in the collection
            ``GraphKeys.SAVERS``, or a new one for all variables.
        checkpoint_basename: How the names of checkpoints begin.
        scaffold: Its ``saver`` is the saver.
        listeners: Called before and after each checkpoint.
        save_graph_def: Whether to write ``graph.pbtxt`` and meta graphs of a TensorFlow graph. The
            event file always has the graph.
        trigger: When to save.

    Raises:
        ValueError: Unless exactly one cadence is given, or if both ``saver`` and ``scaffold`` are.
        TypeError: If a listener has no ``after_save``.
    """

    last: ClassVar[bool] = True
    _steps_per_run = 1_000_000  # as in TensorFlow

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Iterable[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        super().__init__(tensorflow_timer_of(trigger, save_secs=save_secs, save_steps=save_steps))
        if saver is not None and scaffold is not None:
            raise ValueError(f"saver={saver!r} and scaffold={scaffold!r} cannot both be given")
        arguments.given(checkpoint_dir=checkpoint_dir)
        arguments.directory(checkpoint_dir=checkpoint_dir)
        arguments.given(checkpoint_basename=checkpoint_basename)
        arguments.instance(str, checkpoint_basename=checkpoint_basename)
        if checkpoint_basename in ("", ".", "..") or "/" in checkpoint_basename:
            raise ValueError(
                "checkpoint_basename must be the name of a file in checkpoint_dir, got "
                f"{checkpoint_basename!r}"
            )
        self._checkpoint_dir = checkpoint_dir
        self._output = SummaryOutput(checkpoint_dir)
        self._basename = checkpoint_basename
        self._save_path = inside(checkpoint_dir, checkpoint_basename)
        self._lock = DirectoryLock(checkpoint_dir)
        self._saver = saver
        self._scaffold = scaffold
        self._listeners = list(listeners or ())
        for listener in self._listeners:
            if not callable(getattr(listener, "after_save", None)):
                raise TypeError(f"listeners must be CheckpointSaverListeners, got {listener!r}")
        self._save_graph_def = save_graph_def
        self._saved: _State | None = None
        #: At the last call of ``_save``: a subclass may save in its own way.
        self._asked: _State | None = None
        self._under_way: _Save | None = None
        self._best: list[KeepBest] = []
        self._graph_written = False

    def begin(self) -> None:
        super().begin()
        self._graph = get_default_graph()
        opener = opener_of(self._graph)
        directory = opener.resolve(self._checkpoint_dir)
        self._save_path = inside(directory, self._basename)
        self._lock = DirectoryLock(directory, claims=opener.writes_checkpoints)
        self._lock.acquire()
        self._output.open()
        self._graph_written = False
        self._asked = None
        self._call_listeners("begin", lambda it: it.begin())

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        step = step_of(session)
        saver = None if session_of(session).has_framework_saver else self._get_saver()
        self._best = saver.best_rules if isinstance(saver, Saver) else []
        stopping = self._finish(session)
        self._output.start(session)
        if self._save_graph_def and not self._graph_written and current_group().is_chief:
            session_of(session).write_graph(self._checkpoint_dir)
            self._graph_written = True
        raw, group, path = session_of(session), current_group(), self._path(step)
        # All ranks save again if a hook of one has changed its state.
        if group.size > 1 and group.agree("restored", str(raw.is_saved_as(path)), min) != str(True):
            raw.note_unsaved()
        self._saved = self._state(session, step) if self._is_restored(session, step) else None
        self._count_from_start(session, step)
        stopping = self._ask_to_save(session, step) or stopping
        if stopping and coord is not None:
            coord.request_stop()

    def next_due(self) -> Due | None:
        if self._under_way is not None:
            return Due(runs=1)
        return earliest(self._timer.due(), *(rule.metric.next_due() for rule in self._best))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        step = step_of(session)
        stopping = self._finish_if_done(session)
        is_due = self._timer.should_trigger_for_step(step)
        if is_due:
            self._timer.update_last_triggered_step(step)
        if is_due or self._best_at(step):
            stopping = self._ask_to_save(session, step) or stopping
        if stopping:
            run_context.request_stop()

    def end(self, session: RawSession) -> None:
        step = step_of(session)
        try:
            try:
                # All ranks save, or none.
                is_new = self._state(session, step) not in (self._saved, self._asked)
                if is_new and not session_of(session).ended_apart:
                    self._ask_to_save(session, step)
            finally:
                self._finish(session)
            self._call_listeners("end", lambda it: it.end(session, step))
            self._output.flush()
        finally:
            self._lock.release()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        try:
            self._wait(session)
        except Exception as error:
            if error is not exception:
                raise
        finally:
            self._lock.release()

    def _ask_to_save(self, session: RawSession, step: int) -> bool:
        asked = self._state(session, step)
        found, group = session_of(session).state_error, current_group()
        error = "" if found is None else str(found)
        if group.size > 1:
            error = group.agree("errors in the state", error, max)
        if error:
            log_of(session).warning("step %d is not saved as a checkpoint: %s", step, error)
        stopping = not error and self._save(session, step)
        self._asked = asked
        return stopping

    def _save(self, session: RawSession, step: int) -> bool:
        """Save ``step`` unless that is done; return whether a listener asks to stop."""
        step = int(step)  # a subclass may pass what a run has returned
        if self._state(session, step) == self._saved:
            return False
        self._lock.acquire()  # again: for a forked child, or a directory made anew
        stopping = self._finish(session)
        with not_training(session):
            self._call_listeners("before_save", lambda it: it.before_save(session, step))
            settle_all()
            try:
                self._output.flush()  # raises what was lost here
            except Exception:  # no reason to lose the checkpoint as well
                self._begin_save(session, step)
                raise
            self._begin_save(session, step)
        return self._finish_if_done(session) or stopping

    def _begin_save(self, session: RawSession, step: int) -> None:
        path = self._path(step)
        if not self._is_saved(session, step):
            path = session_of(session).save_checkpoint(
                self._get_saver(), self._save_path, step, save_graph_def=self._save_graph_def
            )
        self._saved = self._state(session, step)
        self._under_way = _Save(step, path, save_under_way(path))

    def _finish_if_done(self, session: RawSession) -> bool:
        save = self._under_way
        done = save is not None and (save.background is None or save.background.done)
        return done and self._finish(session)

    def _finish(self, session: RawSession) -> bool:
        """Wait for the save under way and call listeners; return whether one asks to stop."""
        save = self._wait(session)
        if save is None:
            return False
        asked: list[CheckpointSaverListener] = []

        def call(listener: CheckpointSaverListener) -> None:
            if listener.after_save(session, save.step):
                asked.append(listener)
                text = "%s asks to stop after the checkpoint of step %d"
                log_of(session).info(text, type(listener).__name__, save.step)

        with not_training(session):
            self._call_listeners("after_save", call)
        return bool(asked)

    def _call_listeners(self, phase: str, call: Callable[[CheckpointSaverListener], None]) -> None:
        for listener in self._listeners:
            try:
                call(listener)
            except Exception as error:
                add_note(error, f"in {phase} of the listener {type(listener).__name__}")
                raise

    def _wait(self, session: RawSession | None) -> _Save | None:
        """Wait for the save under way, and record it in the event file."""
        save = self._under_way
        if save is None:
            return None
        if save.background is not None:
            try:
                with not_training(session):
                    save.background.wait()
            finally:  # a Ctrl-C may end the wait first
                self._under_way = None if save.background.done else save
        self._under_way = None
        log_of(session).info("saved checkpoint %s", save.path)
        path = os.fsencode(save.path).decode(errors="replace")  # events are UTF-8
        self._output.add_session_log(SessionLog(SessionStatus.CHECKPOINT, path), save.step)
        return save

    def _state(self, session: RawSession, step: int) -> _State:
        return _State(step, session_of(session).changes, self._best_at(step))

    def _best_at(self, step: int) -> dict[str, float]:
        rules = [rule for rule in self._best if rule.is_among_best(step)]
        return {rule.name: float(rule.metric.by_step()[step]) for rule in rules}

    def _is_saved(self, session: RawSession, step: int) -> bool:
        """Return whether it is saved, with the metrics by which it is among the best.

        An evaluation at the end, or one that a resumed session repeats, comes after the save.
        """
        raw = session_of(session)
        if not raw.is_saved_as(self._path(step)):
            return False
        return self._best_at(step).items() <= raw.checkpoint_metrics.items()

    def _path(self, step: int) -> str:
        return self._save_path + f"-{step}"  # a URL stays one that can be opened

    def _is_restored(self, session: RawSession, step: int) -> bool:
        """Return whether it is at a checkpoint that needs no ``after_save``."""
        if not self._is_saved(session, step):
            return False
        if session_of(session).has_framework_saver:  # its saves are done at once
            return True
        path, saver = self._path(step), self._get_saver()
        saved_here = save_under_way(path) or path in getattr(saver, "last_checkpoints", ())
        return (self._saved or (None,))[0] == step or not saved_here

    def _get_saver(self) -> Any:
        if self._saver is None:
            self._saver = self._find_saver() if self._scaffold is None else self._scaffold.saver
        return self._saver

    def _find_saver(self) -> Any:
        savers = self._graph.get_collection(GraphKeys.SAVERS)
        if len(savers) > 1:
            raise RuntimeError(
                f"More than one item in collection {GraphKeys.SAVERS!r}, {len(savers)} savers: "
                "give CheckpointSaverHook a saver or scaffold"
            )
        if not savers and self._graph.launched is not self._graph:
            raise RuntimeError(
                f"No items in collection {GraphKeys.SAVERS}: add a saver to it, or give saver or "
                "scaffold to CheckpointSaverHook"
            )
        return savers[0] if savers else Saver()

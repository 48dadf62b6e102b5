"""``CheckpointSaverHook``: saves checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from runhooks import arguments
from runhooks.checkpoint import BackgroundSave, Saver, save_under_way
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines import foreign
from runhooks.events import flush_all
from runhooks.graph.collections import GraphKeys
from runhooks.hooks.checkpoint_saver_listener import CheckpointSaverListener, naming_listener
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.log import log_of
from runhooks.hooks.summary_output import add_start
from runhooks.hooks.time_apart import spent_apart
from runhooks.summary import FileWriterCache, SessionLog, SessionStatus
from runhooks.trigger import Due, Trigger, timer_of


class _Save(NamedTuple):
    """A save that listeners were not told of yet; ``background``: None if it is done."""

    step: int
    path: str
    background: BackgroundSave | None


class CheckpointSaverHook(SessionRunHook):
    """Saves a checkpoint when a session starts, every so often, and at the end; each step once.

    ``save_secs``, ``save_steps`` or ``trigger``: how often. ``saver``, or that of ``scaffold``:
    what saves; with neither, the one in the graph's collection ``GraphKeys.SAVERS``, or one of all
    variables. Checkpoints are ``<checkpoint_dir>/<checkpoint_basename>-<step>``.
    ``save_graph_def``: whether to write the graph to the event file of that directory; of
    TensorFlow's, which is written there anyway, to ``graph.pbtxt`` and to meta graphs. As in
    ``tf.compat.v1.train``.

    A step that the session was restored from, or another such hook has saved, is not saved again.
    A resumed run saves at the steps of one that was never stopped.

    All event files of the process are flushed before a checkpoint is there: what was written of
    its steps will not be computed again. An error of one of them is raised when it is there.

    With ``Saver(asynchronous=True)`` training goes on while a checkpoint is written. Listeners are
    told when it is on the disk, some steps later; what writing it failed of is raised after the
    next run. The next save, and the end, wait for it.

    Raises ValueError unless exactly one of ``save_secs``, ``save_steps`` and ``trigger`` is given,
    and if both ``saver`` and ``scaffold`` are.
    """

    last: ClassVar[bool] = True

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
        if saver is not None and scaffold is not None:
            raise ValueError(f"saver={saver!r} and scaffold={scaffold!r} cannot both be given")
        arguments.given(checkpoint_dir=checkpoint_dir)
        arguments.directory(checkpoint_dir=checkpoint_dir)
        self._checkpoint_dir = checkpoint_dir
        self._save_path = Path(checkpoint_dir) / checkpoint_basename
        self._timer = timer_of(trigger, save_secs=save_secs, save_steps=save_steps)
        self._saver = saver
        self._scaffold = scaffold
        self._listeners = list(listeners or ())
        for listener in self._listeners:
            if not callable(getattr(listener, "after_save", None)):
                raise TypeError(f"listeners must be CheckpointSaverListeners, got {listener!r}")
        self._save_graph_def = save_graph_def
        self._saved_step: int | None = None
        self._under_way: _Save | None = None
        self._graph_written = False

    def begin(self) -> None:
        required_global_step(self)
        self._writer = FileWriterCache.get(self._checkpoint_dir)
        self._graph_written = False
        self._timer.reset()
        for listener in self._listeners:
            with naming_listener(listener, "begin"):
                listener.begin()

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        step = step_of(session)
        if self._saver is None:
            self._saver = self._find_saver(session)
        stopping = self._finish(session)
        add_start(self._writer, session)
        if not self._graph_written:
            self._write_graph(session)
            self._graph_written = True
        self._saved_step = step if self._is_restored(session, step) else None
        self._timer.start(step)
        if self._timer.last_triggered_step() is None:
            self._timer.update_last_triggered_step(step)
        stopping = self._save(session, step) or stopping
        if stopping and coord is not None:
            coord.request_stop()

    def next_due(self) -> Due | None:
        return self._timer.due() if self._under_way is None else Due(runs=1)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        step = step_of(session)
        stopping = self._finish_if_done(session)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            stopping = self._save(session, step) or stopping
        if stopping:
            run_context.request_stop()

    def end(self, session: RawSession) -> None:
        step = step_of(session)
        try:
            self._save(session, step)
        finally:
            self._finish(session)
        for listener in self._listeners:
            with naming_listener(listener, "end"):
                listener.end(session, step)
        self._writer.flush()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        try:
            self._wait(session)
        except Exception as error:
            if error is not exception:
                raise

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Nothing: for loops of TensorFlow. The step after each run is known here."""

    def _save(self, session: RawSession, step: int) -> bool:
        """Save ``step`` unless that is done; whether a listener asks to stop."""
        if step == self._saved_step:
            return False
        stopping = self._finish(session)
        with spent_apart(session):
            for listener in self._listeners:
                with naming_listener(listener, "before_save"):
                    listener.before_save(session, step)
            try:
                flush_all()
            finally:  # the loss of summaries is no reason to lose the checkpoint as well
                path = self._path(step)
                if getattr(session, "checkpoint", None) != path:
                    path = self._write_checkpoint(session, step)
                self._saved_step = step
                self._under_way = _Save(step, path, save_under_way(path))
        return self._finish_if_done(session) or stopping

    def _write_graph(self, session: RawSession) -> None:
        write_graph = getattr(_known(session), "write_graph", None)
        if write_graph is not None:  # TensorFlow's graph is more than its names
            write_graph(self._writer, self._checkpoint_dir if self._save_graph_def else None)
        elif self._save_graph_def:
            self._writer.add_graph(session.graph)

    def _write_checkpoint(self, session: RawSession, step: int) -> str:
        save_with = getattr(_known(session), "save_with", None)
        if save_with is None:
            return str(self._saver.save(session, self._save_path, global_step=step))
        path: str = save_with(
            self._saver, self._save_path, step, save_graph_def=self._save_graph_def
        )
        return path

    def _finish_if_done(self, session: RawSession) -> bool:
        save = self._under_way
        done = save is not None and (save.background is None or save.background.done)
        return done and self._finish(session)

    def _finish(self, session: RawSession) -> bool:
        """Wait for the save under way and tell the listeners; whether one asks to stop."""
        save = self._wait(session)
        if save is None:
            return False
        stopping = False
        for listener in self._listeners:
            with spent_apart(session), naming_listener(listener, "after_save"):
                asked = listener.after_save(session, save.step)
            if asked:
                stopping = True
                name = type(listener).__name__
                log = log_of(session)
                log.info("%s asks to stop after the checkpoint of step %d", name, save.step)
        return stopping

    def _wait(self, session: RawSession | None) -> _Save | None:
        """Wait for the save under way, and write down that it is on the disk."""
        save = self._under_way
        if save is None:
            return None
        if save.background is not None:
            try:
                with spent_apart(session):
                    save.background.wait()
            finally:  # a Ctrl-C may end the waiting before the saving ends
                self._under_way = None if save.background.done else save
        self._under_way = None
        log_of(session).info("saved checkpoint %s", save.path)
        self._writer.add_session_log(SessionLog(SessionStatus.CHECKPOINT, save.path), save.step)
        return save

    def _path(self, step: int) -> str:
        return f"{self._save_path}-{step}"

    def _is_restored(self, session: RawSession, step: int) -> bool:
        """Whether ``session`` holds a checkpoint of ``step`` that listeners need not be told of."""
        path = self._path(step)
        if getattr(session, "checkpoint", None) != path:
            return False
        if hasattr(session, "save_with"):  # what TensorFlow saves is told of at once
            return True
        saved_here = save_under_way(path) or path in getattr(self._saver, "last_checkpoints", ())
        return step == self._saved_step or not saved_here

    def _find_saver(self, session: RawSession) -> Any:
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = session.graph.get_collection(GraphKeys.SAVERS)
        if len(savers) > 1:
            raise RuntimeError(
                f"More than one item in collection {GraphKeys.SAVERS!r}, {len(savers)} savers: "
                "give saver or scaffold to CheckpointSaverHook to say which one it is to use"
            )
        if not savers and hasattr(_known(session), "save_with"):
            raise RuntimeError(
                f"No items in collection {GraphKeys.SAVERS}: add a saver to it, or give saver or "
                "scaffold to CheckpointSaverHook"
            )
        return savers[0] if savers else Saver()


def _known(session: RawSession) -> Any:
    """The session, or what is known of one that TensorFlow's own loop runs."""
    return session if hasattr(session, "global_step") else foreign.observed(session)

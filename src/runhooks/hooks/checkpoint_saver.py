"""``CheckpointSaverHook``: saves checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from runhooks import arguments
from runhooks.checkpoint import Saver
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.events import flush_all
from runhooks.graph.collections import GraphKeys
from runhooks.hooks.checkpoint_saver_listener import CheckpointSaverListener
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.summary_output import add_start
from runhooks.summary import FileWriterCache, SessionLog, SessionStatus
from runhooks.trigger import Due, SecondOrStepTimer

_log = logging.getLogger("runhooks")


class CheckpointSaverHook(SessionRunHook):
    """Saves a checkpoint when a session starts, every so often, and at the end; each step once.

    ``save_secs`` or ``save_steps``: how often. ``saver``, or that of ``scaffold``: what saves;
    with neither, the one in the graph's collection ``GraphKeys.SAVERS``, or one of all variables.
    Checkpoints are ``<checkpoint_dir>/<checkpoint_basename>-<step>``. ``save_graph_def``: whether
    to write the graph to the event file of that directory. As in ``tf.compat.v1.train``.

    All event files of the process are flushed before a checkpoint is there: what was written of
    its steps will not be computed again. An error of one of them is raised when it is there.

    Raises ValueError unless exactly one of ``save_secs`` and ``save_steps`` is given, and if both
    ``saver`` and ``scaffold`` are.
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
    ) -> None:
        arguments.exactly_one(save_secs=save_secs, save_steps=save_steps)
        arguments.positive(save_secs=save_secs, save_steps=save_steps)
        if saver is not None and scaffold is not None:
            raise ValueError(f"saver={saver!r} and scaffold={scaffold!r} cannot both be given")
        self._checkpoint_dir = checkpoint_dir
        self._save_path = Path(checkpoint_dir) / checkpoint_basename
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._saver = saver
        self._scaffold = scaffold
        self._listeners = list(listeners or ())
        self._save_graph_def = save_graph_def
        self._saved_step: int | None = None
        self._graph_written = False

    def begin(self) -> None:
        required_global_step(self)
        self._writer = FileWriterCache.get(self._checkpoint_dir)
        self._graph_written = False
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        step = step_of(session)
        if self._saver is None:
            self._saver = self._find_saver(session)
        add_start(self._writer, session)
        if self._save_graph_def and not self._graph_written:
            self._writer.add_graph(session.graph)
            self._graph_written = True
        # A session that was restored from the checkpoint of this step needs no other.
        restored_from = getattr(session, "restored_from", None)
        self._saved_step = step if restored_from == f"{self._save_path}-{step}" else None
        if self._save(session, step):
            coord.request_stop()
        self._timer.update_last_triggered_step(step)

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: RawSession) -> None:
        step = step_of(session)
        self._save(session, step)
        for listener in self._listeners:
            listener.end(session, step)
        self._writer.flush()

    def _save(self, session: RawSession, step: int) -> bool:
        """Save ``step`` unless that is done; whether a listener asks to stop."""
        if step == self._saved_step:
            return False
        for listener in self._listeners:
            listener.before_save(session, step)
        try:
            flush_all()
        finally:  # the loss of summaries is no reason to lose the checkpoint as well
            path = str(self._saver.save(session, self._save_path, global_step=step))
            self._saved_step = step
            _log.info("saved checkpoint %s", path)
        self._writer.add_session_log(SessionLog(SessionStatus.CHECKPOINT, path), step)
        stopping = [it for it in self._listeners if it.after_save(session, step)]
        for listener in stopping:
            _log.info("%r asks to stop after the checkpoint of step %d", listener, step)
        return bool(stopping)

    def _find_saver(self, session: RawSession) -> Any:
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = session.graph.get_collection(GraphKeys.SAVERS)
        if len(savers) > 1:
            raise RuntimeError(
                f"the collection {GraphKeys.SAVERS!r} holds {len(savers)} savers: give saver or "
                "scaffold to CheckpointSaverHook to say which one it is to use"
            )
        return savers[0] if savers else Saver()

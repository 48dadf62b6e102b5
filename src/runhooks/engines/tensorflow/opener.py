"""``TensorFlowOpener``: how the sessions of a ``tf.Graph`` are created."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import tensorflow as tf

from runhooks.engines.tensorflow.fetches import AnalyzedGraph
from runhooks.engines.tensorflow.files import (
    check_no_other_checkpoints,
    check_saver,
    check_scheme,
    respell_checkpoints,
)
from runhooks.engines.tensorflow.session import AdoptedSession, Session
from runhooks.errors import FailedPreconditionError
from runhooks.graph.base import Place, SessionOpener

v1 = tf.compat.v1

_log = logging.getLogger("runhooks")


#: What TensorFlow's own scaffold finds in the collections of a graph, or makes.
_PARTS = (
    *("init_op", "ready_op", "ready_for_local_init_op"),
    *("local_init_op", "summary_op", "saver"),
)


def _saver() -> Any:
    return v1.train.Saver(sharded=True, allow_empty=True)


class TensorFlowOpener(SessionOpener):
    """Creates the sessions of one graph."""

    scaffolds = (v1.train.Scaffold,)
    joins_ranks = False
    writes_checkpoints = False

    def __init__(self, graph: AnalyzedGraph) -> None:
        self._graph = graph

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        check_scheme(place)
        return place

    def fill_scaffold(self, scaffold: Any) -> None:
        check_saver(scaffold.saver)
        with self._graph.launched.as_default():
            if scaffold.saver is None:
                scaffold.saver = scaffold.get_or_default("saver", v1.GraphKeys.SAVERS, _saver)
            # After the saver, which changes the step when it restores; before the graph is final.
            self.prepare_graph()
            given = {name: getattr(scaffold, name) for name in _PARTS}
            filled = v1.train.Scaffold(**given).finalize()
        for name in _PARTS:
            setattr(scaffold, name, getattr(filled, name))

    def default_local_init_op(self) -> Any:
        return v1.train.Scaffold.default_local_init_op()

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        session = Session(master, self._graph.launched, config)
        try:
            if not self._restored(session, scaffold.saver, checkpoint_dir, path):
                session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
                if getattr(scaffold, "init_from", None) is not None:  # TensorFlow's has none
                    scaffold.init_from.load_into(session)
                if scaffold.init_fn is not None:
                    scaffold.init_fn(session)
            if missing := _missing_after_local_init(session, scaffold):
                raise RuntimeError(
                    f"Init operations did not make model ready.  Init op: {scaffold.init_op}, init "
                    f"fn: {scaffold.init_fn}, local_init_op: {scaffold.local_init_op}, error: "
                    f"{missing}"
                )
        except BaseException:
            session.close()
            raise
        return session

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, Exception | None]:
        session = Session(master, self._graph.launched, config)
        try:
            missing = _missing_after_local_init(session, scaffold)
        except BaseException:
            session.close()
            raise
        if missing is None:
            return session, None
        session.close()
        return None, FailedPreconditionError(missing)

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        error: Exception = tf.errors.DeadlineExceededError(None, None, message)
        return error

    def prepare_graph(self) -> None:
        # A creator of the user's own may never ask to fill a scaffold.
        self._graph.step_reads.prepare()

    def as_raw_session(self, session: Any) -> Any:
        if isinstance(session, Session):
            session.begin()
            return session
        return AdoptedSession(session)

    def start_threads(self, session: Any, coord: Any) -> None:
        for runner in self._graph.launched.get_collection(v1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(session, coord=coord, daemon=True, start=True)

    def _restored(self, session: Session, saver: Any, directory: Place, path: Place) -> bool:
        """Restore a checkpoint: ``path``, or the newest sound one of ``directory``, if any."""
        if path:
            self._restore(session, saver, os.fspath(path))
        if path or not directory:
            return bool(path)
        folder = os.fspath(directory)
        state = v1.train.get_checkpoint_state(folder)
        if state is None or not state.model_checkpoint_path:
            check_no_other_checkpoints(folder)
            return False
        newest, others = state.model_checkpoint_path, state.all_model_checkpoint_paths
        damage: Exception | None = None
        for saved in dict.fromkeys([newest, *reversed(others)]):
            try:
                self._restore(session, saver, saved)
            # The end of a file that comes too early is out of range.
            except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
                damage = damage or error
                _log.warning("the checkpoint %s is damaged: %s", saved, error.message)
            else:
                saver.recover_last_checkpoints(others)
                respell_checkpoints(saver, folder.rstrip("/") or "/")
                return True
        assert damage is not None
        raise damage

    def _restore(self, session: Session, saver: Any, path: str) -> None:
        # They reset a loaded model to the values it was loaded with: restore after them.
        if initializers := self._graph.launched.get_collection("saved_model_initializers"):
            session.run(initializers)
        saver.restore(session, path)
        session.take_checkpoint(path)


def _missing_after_local_init(session: Session, scaffold: Any) -> str | None:
    """Run ``local_init_op``; return what is not initialized, before or after it, or None."""
    missing = _missing(session, scaffold.ready_for_local_init_op)
    if missing is not None:
        return missing
    if scaffold.local_init_op is not None:
        session.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)
    return _missing(session, scaffold.ready_op)


def _missing(session: Session, op: Any) -> str | None:
    """Return what ``op`` reports as not initialized; None if nothing."""
    if op is None:
        return None
    try:
        answer = session.run(op)
    except tf.errors.FailedPreconditionError as error:
        # The rest of the text says where in the program the operation was made.
        lines = [line for line in str(error).splitlines() if "uninitialized" in line]
        if not lines:
            raise
        return lines[0].strip()
    if answer is None or np.asarray(answer).dtype == np.int32 or np.size(answer) == 0:
        return None
    if np.asarray(answer).dtype == bool:
        is_ready = np.ndim(answer) == 0 and answer
        return None if is_ready else f"{getattr(op, 'name', op)} is {np.asarray(answer).tolist()}"
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in np.ravel(answer)]
    return "Variables not initialized: " + ", ".join(names)

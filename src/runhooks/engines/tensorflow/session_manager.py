"""``SessionManager``: creates sessions, restores or initialises them, and waits for others."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from runhooks import clock
from runhooks.engines.tensorflow.session import TensorFlowSession

v1 = tf.compat.v1

_log = logging.getLogger("runhooks")


class SessionManager:
    """As ``tf.compat.v1.train.SessionManager``.

    ``ready_op`` and ``ready_for_local_init_op`` give what is still lacking, an empty array if
    nothing is; ``local_init_op`` is run in every new session, fed ``local_init_feed_dict``.
    ``graph``: the default graph if None. ``recovery_wait_secs``: seconds from one look at what
    others have done to the next.

    Raises ValueError for a ``ready_for_local_init_op`` without ``local_init_op``.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op to run "
                f"when it is ready, got ready_for_local_init_op={ready_for_local_init_op!r}"
            )
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = v1.get_default_graph() if graph is None else graph
        self._wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Any], Any] | None = None,
    ) -> TensorFlowSession:
        """A session that is restored from a checkpoint, or else initialised, and ready.

        Raises RuntimeError if it is not ready then, or if there is nothing to initialise it with;
        ValueError if both places of a checkpoint are given.
        """
        restored, session = self._restored(
            *(master, saver, checkpoint_dir, checkpoint_filename_with_path),
            *(wait_for_checkpoint, max_wait_secs, config),
        )
        if not restored:
            if init_op is None and not init_fn and self._local_init_op is None:
                raise RuntimeError(
                    "Model is not initialized and no init_op or init_fn or local_init_op was given"
                )
            if init_op is not None:
                session.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(session)
        self._check_ready(session, init_op, init_fn)
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[TensorFlowSession, bool]:
        """A session, and whether it was restored from a checkpoint and is ready.

        Raises ValueError if both places of a checkpoint are given.
        """
        restored, session = self._restored(
            *(master, saver, checkpoint_dir, checkpoint_filename_with_path),
            *(wait_for_checkpoint, max_wait_secs, config),
        )
        lacking = self._lacking_after_local_init(session)
        if restored and lacking is None:
            lacking = self._lacking(self._ready_op, session)
        if restored and lacking is not None:
            _log.info("restoring %s did not make the model ready: %s", session.checkpoint, lacking)
        return session, restored and lacking is None

    def wait_for_session(
        self, master: str, config: Any = None, max_wait_secs: float | None = math.inf
    ) -> TensorFlowSession:
        """A session that others have initialised.

        Raises ``tf.errors.DeadlineExceededError`` if none is ready after ``max_wait_secs`` seconds.
        """
        limit = math.inf if max_wait_secs is None else max_wait_secs
        start = clock.monotonic()
        while True:
            session, lacking = self.look_for_session(master, config)
            if session is not None:
                return session
            if clock.monotonic() - start + self._wait_secs > limit:
                too_late(f"Session was not ready after waiting {limit:g} secs: {lacking}")
            _log.info("waiting for the model to be ready: %s", lacking)
            _pause(self._wait_secs)

    def look_for_session(
        self, master: str, config: Any = None
    ) -> tuple[TensorFlowSession | None, str | None]:
        """A session that others have initialised, or None and what is lacking yet."""
        session = TensorFlowSession(master, self._graph, config)
        try:
            lacking = self._lacking_after_local_init(session)
            if lacking is None:
                lacking = self._lacking(self._ready_op, session)
            if lacking is None:
                return session, None
        except BaseException:
            session.close()
            raise
        session.close()
        return None, lacking

    def _restored(
        self,
        master: str,
        saver: Any,
        checkpoint_dir: str | None,
        path: str | None,
        wait_for_checkpoint: bool,
        max_wait_secs: float,
        config: Any,
    ) -> tuple[bool, TensorFlowSession]:
        if checkpoint_dir and path:
            raise ValueError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path, got "
                f"{checkpoint_dir!r} and {path!r}"
            )
        session = TensorFlowSession(master, self._graph, config)
        if saver is None or not (checkpoint_dir or path):
            return False, session
        if path:
            self._restore(session, saver, path)
            return True, session
        limit = max_wait_secs if wait_for_checkpoint else 0.0
        state = self._checkpoint_state(str(checkpoint_dir), limit)
        return state is not None and self._restore_latest(session, saver, state), session

    def _checkpoint_state(self, checkpoint_dir: str, max_wait_secs: float) -> Any:
        start = clock.monotonic()
        while True:
            state = v1.train.get_checkpoint_state(checkpoint_dir)
            if state is not None and state.model_checkpoint_path:
                return state
            if clock.monotonic() - start >= max_wait_secs:
                return None
            _log.info("waiting for a checkpoint in %s", checkpoint_dir)
            _pause(self._wait_secs)

    def _restore_latest(self, session: TensorFlowSession, saver: Any, state: Any) -> bool:
        """Restore the newest sound checkpoint; a damaged one is skipped with a warning."""
        paths = [state.model_checkpoint_path]
        paths += [p for p in reversed(state.all_model_checkpoint_paths) if p not in paths]
        damage: Exception | None = None
        for path in paths:
            try:
                self._restore(session, saver, path)
            # The end of a file that comes too early is out of range.
            except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
                damage = damage or error
                _log.warning("the checkpoint %s is damaged: %s", path, error.message)
            else:
                saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
                return True
        assert damage is not None
        raise damage

    def _restore(self, session: TensorFlowSession, saver: Any, path: str) -> None:
        # These give a model that was loaded the values that it was loaded with: what was trained
        # since comes after.
        initialisers = self._graph.get_collection("saved_model_initializers")
        if initialisers:
            session.run(initialisers)
        saver.restore(session, path)
        session.take_states(str(path))

    def _check_ready(self, session: TensorFlowSession, init_op: Any, init_fn: Any) -> None:
        who = f"Init op: {getattr(init_op, 'name', init_op)}, init fn: {init_fn}"
        lacking = self._lacking_after_local_init(session)
        if lacking is not None:
            raise RuntimeError(
                f"Init operations did not make model ready for local_init.  {who}, error: {lacking}"
            )
        lacking = self._lacking(self._ready_op, session)
        if lacking is not None:
            raise RuntimeError(
                f"Init operations did not make model ready.  {who}, local_init_op: "
                f"{self._local_init_op}, error: {lacking}"
            )

    def _lacking_after_local_init(self, session: TensorFlowSession) -> str | None:
        if self._local_init_op is None:
            return None
        lacking = self._lacking(self._ready_for_local_init_op, session)
        if lacking is None:
            session.run(
                self._local_init_op,
                feed_dict=self._local_init_feed_dict,
                options=self._local_init_run_options,
            )
        return lacking

    def _lacking(self, op: Any, session: TensorFlowSession) -> str | None:
        """What ``op`` says is not there yet; None if nothing."""
        if op is None:
            return None
        try:
            answer = session.run(op)
        except tf.errors.FailedPreconditionError as error:
            # The rest of the text says where in the program the operation was made.
            told = [line for line in str(error).splitlines() if "uninitialized" in line]
            if not told:
                raise
            return told[0].strip()
        if answer is None or np.asarray(answer).dtype == np.int32 or np.size(answer) == 0:
            return None
        names = [n.decode() if isinstance(n, bytes) else str(n) for n in np.ravel(answer)]
        return "Variables not initialized: " + ", ".join(names)


def too_late(message: str) -> NoReturn:
    """Raise ``tf.errors.DeadlineExceededError``."""
    raise tf.errors.DeadlineExceededError(None, None, message)


def _pause(secs: float) -> None:
    threading.Event().wait(secs)

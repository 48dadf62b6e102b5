"""``SessionManager``: creates sessions, restores or initializes them, and waits for others."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from runhooks import clock
from runhooks.engines.tensorflow.files import (
    check_no_other_checkpoints,
    respell_checkpoints,
)
from runhooks.engines.tensorflow.session import Session

v1 = tf.compat.v1

_log = logging.getLogger("runhooks")


class SessionManager:
    """As ``tf.compat.v1.train.SessionManager``.

    Args:
        local_init_op: Run in every new session, fed ``local_init_feed_dict``.
        ready_op: Gives the names of what is not initialized yet; empty if all is.
        ready_for_local_init_op: The same, before ``local_init_op`` is run.
        graph: None: the default graph.
        recovery_wait_secs: Seconds between two checks of what other processes have done.
        local_init_run_options: Run options for ``local_init_op``.
        local_init_feed_dict: Feeds for ``local_init_op``.

    Raises:
        ValueError: For a ``ready_for_local_init_op`` without ``local_init_op``.
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
    ) -> Session:
        """Return a session that is restored from a checkpoint, or else initialized, and ready.

        Raises:
            RuntimeError: If it is not ready then, or nothing was given to initialize it with.
            ValueError: If a checkpoint directory and a checkpoint are given.
        """
        restored, session = self._restored(
            *(master, saver, checkpoint_dir, checkpoint_filename_with_path),
            *(wait_for_checkpoint, max_wait_secs, config),
        )
        try:
            self._make_ready(session, restored, init_op, init_feed_dict, init_fn)
        except BaseException:
            session.close()
            raise
        return session

    def _make_ready(
        self,
        session: Session,
        restored: bool,
        init_op: Any,
        init_feed_dict: Mapping[Any, Any] | None,
        init_fn: Callable[[Any], Any] | None,
    ) -> None:
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

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Return a session, and whether it was restored from a checkpoint and is ready.

        Raises:
            ValueError: If a checkpoint directory and a checkpoint are given.
        """
        restored, session = self._restored(
            *(master, saver, checkpoint_dir, checkpoint_filename_with_path),
            *(wait_for_checkpoint, max_wait_secs, config),
        )
        missing = self._missing_after_local_init(session)
        if restored and missing is None:
            missing = self._missing(self._ready_op, session)
        if restored and missing is not None:
            _log.info("restoring %s did not make the model ready: %s", session.checkpoint, missing)
        return session, restored and missing is None

    def wait_for_session(
        self, master: str, config: Any = None, max_wait_secs: float | None = math.inf
    ) -> Session:
        """Return a session that another process has initialized.

        Raises:
            tf.errors.DeadlineExceededError: If none is ready after ``max_wait_secs`` seconds.
        """
        limit = math.inf if max_wait_secs is None else max_wait_secs
        start = clock.monotonic()
        while True:
            session, missing = self.look_for_session(master, config)
            if session is not None:
                return session
            if clock.monotonic() - start + self._wait_secs > limit:
                too_late(f"Session was not ready after waiting {limit:g} secs: {missing}")
            _log.info("waiting for the model to be ready: %s", missing)
            _pause(self._wait_secs)

    def look_for_session(
        self, master: str, config: Any = None
    ) -> tuple[Session | None, str | None]:
        """Return a session that another process has initialized, or None and what is missing."""
        session = Session(master, self._graph, config)
        try:
            missing = self._missing_after_local_init(session)
            if missing is None:
                missing = self._missing(self._ready_op, session)
            if missing is None:
                return session, None
        except BaseException:
            session.close()
            raise
        session.close()
        return None, missing

    def _restored(
        self,
        master: str,
        saver: Any,
        checkpoint_dir: str | None,
        path: str | None,
        wait_for_checkpoint: bool,
        max_wait_secs: float,
        config: Any,
    ) -> tuple[bool, Session]:
        if checkpoint_dir and path:
            raise ValueError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path, got "
                f"{checkpoint_dir!r} and {path!r}"
            )
        session = Session(master, self._graph, config)
        if saver is None or not (checkpoint_dir or path):
            return False, session
        try:
            return self._restore_into(
                session, saver, checkpoint_dir, path, wait_for_checkpoint, max_wait_secs
            )
        except BaseException:
            session.close()
            raise

    def _restore_into(
        self,
        session: Session,
        saver: Any,
        checkpoint_dir: str | None,
        path: str | None,
        wait_for_checkpoint: bool,
        max_wait_secs: float,
    ) -> tuple[bool, Session]:
        if path:
            self._restore(session, saver, path)
            return True, session
        limit = max_wait_secs if wait_for_checkpoint else 0.0
        state = self._checkpoint_state(str(checkpoint_dir), limit)
        if state is None:
            check_no_other_checkpoints(str(checkpoint_dir))
        restored = state is not None and self._restore_latest(session, saver, state)
        if restored:
            respell_checkpoints(saver, str(checkpoint_dir).rstrip("/") or "/")
        return restored, session

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

    def _restore_latest(self, session: Session, saver: Any, state: Any) -> bool:
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

    def _restore(self, session: Session, saver: Any, path: str) -> None:
        # They reset a loaded model to the values it was loaded with: restore after them.
        initializers = self._graph.get_collection("saved_model_initializers")
        if initializers:
            session.run(initializers)
        saver.restore(session, path)
        session.take_checkpoint(str(path))

    def _check_ready(self, session: Session, init_op: Any, init_fn: Any) -> None:
        who = f"Init op: {getattr(init_op, 'name', init_op)}, init fn: {init_fn}"
        missing = self._missing_after_local_init(session)
        if missing is not None:
            raise RuntimeError(
                f"Init operations did not make model ready for local_init.  {who}, error: {missing}"
            )
        missing = self._missing(self._ready_op, session)
        if missing is not None:
            raise RuntimeError(
                f"Init operations did not make model ready.  {who}, local_init_op: "
                f"{self._local_init_op}, error: {missing}"
            )

    def _missing_after_local_init(self, session: Session) -> str | None:
        if self._local_init_op is None:
            return None
        missing = self._missing(self._ready_for_local_init_op, session)
        if missing is None:
            session.run(
                self._local_init_op,
                feed_dict=self._local_init_feed_dict,
                options=self._local_init_run_options,
            )
        return missing

    def _missing(self, op: Any, session: Session) -> str | None:
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
        names = [n.decode() if isinstance(n, bytes) else str(n) for n in np.ravel(answer)]
        return "Variables not initialized: " + ", ".join(names)


def too_late(message: str) -> NoReturn:
    """Raise ``tf.errors.DeadlineExceededError``."""
    raise tf.errors.DeadlineExceededError(None, None, message)


def _pause(secs: float) -> None:
    threading.Event().wait(secs)

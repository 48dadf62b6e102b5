"""``SessionCreator`` and its kinds: who begins anew, who goes on, who waits for the chief."""

from __future__ import annotations

import logging
import threading
from typing import Any

from runhooks import clock
from runhooks.checkpoint import latest_checkpoint, restore_latest
from runhooks.errors import DeadlineExceededError
from runhooks.session.scaffold import Scaffold
from runhooks.session.session import Session

_log = logging.getLogger("runhooks")

_LOOK_AGAIN_SECS = 0.2


class SessionCreator:
    """Creates the raw sessions of a monitored session; extend it for sessions of your own."""

    def create_session(self) -> Session:
        """Return a new session of the default graph, ready to run."""
        raise NotImplementedError(f"{type(self).__name__} must define create_session")


class ChiefSessionCreator(SessionCreator):
    """Restores the latest checkpoint, or one by its path, and otherwise initialises.

    ``checkpoint_dir``: where the newest sound checkpoint is looked for;
    ``checkpoint_filename_with_path``: the very checkpoint to restore. ``master`` and ``config``
    are for TensorFlow's own sessions and must be left out.

    Raises ValueError if both places are given, or ``master`` or ``config`` is.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        refuse_master(master, config)
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError(
                "checkpoint_dir and checkpoint_filename_with_path cannot both be given, "
                f"got {checkpoint_dir!r} and {checkpoint_filename_with_path!r}"
            )
        if not isinstance(scaffold, Scaffold | None):
            raise TypeError(f"scaffold must be a Scaffold, got {scaffold!r}")
        self._scaffold = scaffold or Scaffold()
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint = checkpoint_filename_with_path

    def create_session(self) -> Session:
        scaffold = self._scaffold.finalize()
        session = Session()
        restored = self._restore(scaffold, session)
        if restored is None:
            scaffold.initialise(session)
        else:
            _log.info("resumed from step %s: %s", session.global_step, restored)
        scaffold.make_ready(session)
        return session

    def _restore(self, scaffold: Scaffold, session: Session) -> str | None:
        if self._checkpoint:
            scaffold.saver.restore(session, self._checkpoint)
            return self._checkpoint
        if self._checkpoint_dir:
            return restore_latest(scaffold.saver, session, self._checkpoint_dir)
        return None


class WorkerSessionCreator(SessionCreator):
    """Begins with what the chief has saved.

    With a ``checkpoint_dir`` it waits, up to ``max_wait_secs``, until the chief has saved a
    checkpoint there; without one there is nothing to wait for, and it begins as a chief does.
    ``master`` and ``config`` are for TensorFlow's own sessions and must be left out.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float = 30 * 60,
        checkpoint_dir: str | None = None,
    ) -> None:
        refuse_master(master, config)
        self._chief_like = ChiefSessionCreator(scaffold, checkpoint_dir=checkpoint_dir)
        self._checkpoint_dir = checkpoint_dir
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Session:
        """Raises DeadlineExceededError if the chief has saved nothing in time."""
        if self._checkpoint_dir:
            _wait_for_checkpoint(self._checkpoint_dir, self._max_wait_secs)
        return self._chief_like.create_session()


def refuse_master(master: str, config: Any) -> None:
    """Raise ValueError if a session target or a session configuration is given."""
    if master:
        raise ValueError(
            f"master must be left out, got {master!r}: this engine computes in this process, "
            "and has no session server to connect to"
        )
    if config is not None:
        raise ValueError(
            f"config must be left out, got {config!r}: it configures TensorFlow's sessions; "
            "configure the engine's framework itself"
        )


def _wait_for_checkpoint(checkpoint_dir: str, max_wait_secs: float) -> None:
    deadline = clock.monotonic() + max_wait_secs
    announced = False
    while latest_checkpoint(checkpoint_dir) is None:
        if clock.monotonic() >= deadline:
            raise DeadlineExceededError(
                f"the chief has saved no checkpoint in {checkpoint_dir} within {max_wait_secs:g} "
                "seconds: is it running, with this checkpoint_dir? (max_wait_secs sets the limit)",
                path=checkpoint_dir,
            )
        if not announced:
            _log.info("waiting for the chief's first checkpoint in %s", checkpoint_dir)
            announced = True
        # The chief is another process, maybe on another machine: files are all there is to watch.
        threading.Event().wait(_LOOK_AGAIN_SECS)

"""``SessionCreator`` and its kinds: who begins anew, who goes on, who waits for the chief."""

from __future__ import annotations

import logging
import math
import os
from typing import Any, ClassVar

from runhooks import arguments, clock
from runhooks.checkpoint import latest_checkpoint, restore_latest
from runhooks.errors import DeadlineExceededError, FailedPreconditionError
from runhooks.session.scaffold import Scaffold
from runhooks.session.session import Session
from runhooks.session.stop_request import StopRequest

_log = logging.getLogger("runhooks")

#: Between two looks at what the chief has done: a tenth of the wait so far, within these limits.
_LOOK_AGAIN_SECS = (0.2, 5.0)
_SAY_AGAIN_SECS = 60.0


class SessionCreator:
    """Creates the raw sessions of a monitored session; extend it for sessions of your own."""

    #: Made when the monitored session is to stop: a long wait in ``create_session`` hears of it.
    stop_request = StopRequest()

    #: Whether its sessions are to take all that hooks and inputs have left in a checkpoint: a
    #: worker begins with the chief's, whose hooks it has not.
    takes_states: ClassVar[bool] = True

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
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
    ) -> None:
        refuse_master(master, config)
        arguments.directory(
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
        )
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError(
                "checkpoint_dir and checkpoint_filename_with_path cannot both be given, "
                f"got {checkpoint_dir!r} and {checkpoint_filename_with_path!r}"
            )
        arguments.instance(Scaffold, scaffold=scaffold)
        self._scaffold = scaffold or Scaffold()
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint = checkpoint_filename_with_path

    def create_session(self) -> Session:
        """Raises FailedPreconditionError if the scaffold finds the session not ready."""
        scaffold = self._scaffold.finalize()
        session = Session()
        restored = self._restore(scaffold, session)
        if restored is None:
            scaffold.initialise(session)
        else:
            _log.info("resumed from step %s: %s", session.global_step, restored)
        try:
            scaffold.make_ready(session)
        except FailedPreconditionError:
            session.close()  # a worker makes another, and the device may not hold both
            raise
        return session

    def _restore(self, scaffold: Scaffold, session: Session) -> str | None:
        if self._checkpoint:
            scaffold.saver.restore(session, self._checkpoint)
            return str(self._checkpoint)
        if self._checkpoint_dir:
            return restore_latest(scaffold.saver, session, self._checkpoint_dir)
        return None


class WorkerSessionCreator(SessionCreator):
    """Begins with what the chief, the process with ``is_chief=True``, has saved.

    It waits up to ``max_wait_secs`` seconds (None: for ever) until there is a checkpoint in
    ``checkpoint_dir`` and the scaffold finds the session ready. Without a ``checkpoint_dir`` it
    begins as a chief does. ``master`` and ``config`` are for TensorFlow's own sessions and must be
    left out.
    """

    takes_states: ClassVar[bool] = False

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float | None = 30 * 60,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        refuse_master(master, config)
        self._chief_like = ChiefSessionCreator(scaffold, checkpoint_dir=checkpoint_dir)
        self._checkpoint_dir = checkpoint_dir
        self._max_wait_secs = math.inf if max_wait_secs is None else max_wait_secs
        where = f" and checkpoint_dir={str(checkpoint_dir)!r}" if checkpoint_dir else ""
        self._chief = f"the chief, the process with is_chief=True{where}"

    def create_session(self) -> Session:
        """Raises DeadlineExceededError if the chief takes too long, or at a request to stop."""
        start, said = clock.monotonic(), -math.inf
        while True:
            try:
                self._look_for_checkpoint()
                return self._chief_like.create_session()
            except FailedPreconditionError as reason:
                lacking = reason
            now = clock.monotonic()
            waited = now - start
            if waited >= self._max_wait_secs or self.stop_request.reason is not None:
                raise self._too_late(waited, lacking) from lacking
            if now >= said + _SAY_AGAIN_SECS:
                self._say(waited, lacking)
                said = now
            shortest, longest = _LOOK_AGAIN_SECS
            # The chief is another process, maybe on another machine: all there is to do is to look.
            pause = min(max(shortest, waited / 10), longest, self._max_wait_secs - waited)
            self.stop_request.wait(pause)

    def _look_for_checkpoint(self) -> None:
        if self._checkpoint_dir and latest_checkpoint(self._checkpoint_dir) is None:
            raise FailedPreconditionError("it has saved no checkpoint there yet")

    def _say(self, waited: float, lacking: FailedPreconditionError) -> None:
        level = logging.WARNING if waited >= _SAY_AGAIN_SECS else logging.INFO
        limit = self._max_wait_secs
        _log.log(
            level, "waiting for %s, %.0f of %g seconds: %s", self._chief, waited, limit, lacking
        )

    def _too_late(self, waited: float, lacking: FailedPreconditionError) -> DeadlineExceededError:
        end = self.stop_request.reason or f"max_wait_secs={self._max_wait_secs:g} has passed"
        secs = round(waited, 2)
        return DeadlineExceededError(
            f"waited {secs:g} seconds for {self._chief}: {lacking}; is it running? ({end})",
            path=None if not self._checkpoint_dir else str(self._checkpoint_dir),
        )


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

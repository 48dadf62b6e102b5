"""``SessionCreator`` and its kinds: who begins anew, who goes on, who waits for the chief."""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from runhooks import arguments, clock
from runhooks.engines.role import Role
from runhooks.errors import FailedPreconditionError
from runhooks.graph import get_default_graph
from runhooks.session.launcher import launcher_of
from runhooks.session.scaffold import Scaffold
from runhooks.session.session import Session
from runhooks.session.stop_request import StopRequest

_log = logging.getLogger("runhooks")

#: Between two looks at what the chief has done: a tenth of the wait so far, within these limits.
_LOOK_AGAIN_SECS = (0.2, 5.0)
_SAY_AGAIN_SECS = 60.0


class SessionCreator(ABC):
    """Creates the raw sessions of a monitored session; extend it for sessions of your own.

    The graph is final from the first session on if ``create_session`` finalizes a scaffold.
    """

    #: Made when the monitored session is to stop: a long wait in ``create_session`` hears of it.
    stop_request = StopRequest()

    #: Whether its sessions are to take all that hooks and inputs have left in a checkpoint: a
    #: worker begins with the chief's, whose hooks it has not.
    takes_states: ClassVar[bool] = True

    @abstractmethod
    def create_session(self) -> Session:
        """Return a new session of the default graph, ready to run."""


class ChiefSessionCreator(SessionCreator):
    """Restores the latest checkpoint, or one by its path, and otherwise initialises.

    ``checkpoint_dir``: where the newest sound checkpoint is looked for;
    ``checkpoint_filename_with_path``: the very checkpoint to restore. ``master`` and ``config``
    are for TensorFlow's own sessions and must be left out for other graphs.

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
        launcher_of(get_default_graph()).check_target(master, config)
        arguments.directory(
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
        )
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError(
                "checkpoint_dir and checkpoint_filename_with_path cannot both be given, "
                f"got {checkpoint_dir!r} and {checkpoint_filename_with_path!r}"
            )
        _check(scaffold)
        self._scaffold = scaffold or Scaffold()
        self._target = (master, config)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint = checkpoint_filename_with_path

    def create_session(self) -> Session:
        """Raises FailedPreconditionError if the scaffold finds the session not ready."""
        scaffold, launcher = self._scaffold.finalize(), launcher_of(get_default_graph())
        session: Session = launcher.prepare(
            scaffold, *self._target, self._checkpoint_dir, self._checkpoint
        )
        return session


class WorkerSessionCreator(SessionCreator):
    """Begins with what the chief, the process with ``is_chief=True``, has saved.

    It waits up to ``max_wait_secs`` seconds (None: for ever) until there is a checkpoint in
    ``checkpoint_dir`` and the scaffold finds the session ready. Without a ``checkpoint_dir`` it
    begins as a chief does. With TensorFlow's graphs it waits until the chief has made the session
    at ``master`` ready, and ``checkpoint_dir`` says only where that is; ``master`` and ``config``
    must be left out for other graphs.
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
        launcher_of(get_default_graph()).check_target(master, config)
        arguments.directory(checkpoint_dir=checkpoint_dir)
        _check(scaffold)
        self._scaffold = scaffold or Scaffold()
        self._target = (master, config)
        self._checkpoint_dir = checkpoint_dir
        self._max_wait_secs = math.inf if max_wait_secs is None else max_wait_secs
        where = f" and checkpoint_dir={str(checkpoint_dir)!r}" if checkpoint_dir else ""
        self._chief = f"the chief, the process with is_chief=True{where}"

    def create_session(self) -> Session:
        """Raises DeadlineExceededError if the chief takes too long, or at a request to stop."""
        scaffold, launcher = self._scaffold.finalize(), launcher_of(get_default_graph())
        start, said = clock.monotonic(), -math.inf
        while True:
            session, lacking = launcher.look(scaffold, *self._target, self._checkpoint_dir)
            if session is not None:
                return session  # type: ignore[no-any-return]
            now = clock.monotonic()
            waited = now - start
            if waited >= self._max_wait_secs or self.stop_request.reason is not None:
                message = self._too_late(waited, lacking)
                raise launcher.too_late(message, self._checkpoint_dir) from lacking
            if now >= said + _SAY_AGAIN_SECS:
                self._say(waited, lacking)
                said = now
            shortest, longest = _LOOK_AGAIN_SECS
            # The chief is another process, maybe on another machine: all there is to do is to look.
            pause = min(max(shortest, waited / 10), longest, self._max_wait_secs - waited)
            self.stop_request.wait(pause)

    def _say(self, waited: float, lacking: FailedPreconditionError | None) -> None:
        level = logging.WARNING if waited >= _SAY_AGAIN_SECS else logging.INFO
        limit = self._max_wait_secs
        _log.log(
            level, "waiting for %s, %.0f of %g seconds: %s", self._chief, waited, limit, lacking
        )

    def _too_late(self, waited: float, lacking: FailedPreconditionError | None) -> str:
        end = self.stop_request.reason or f"max_wait_secs={self._max_wait_secs:g} has passed"
        secs = round(waited, 2)
        return f"waited {secs:g} seconds for {self._chief}: {lacking}; is it running? ({end})"


def creator_for(
    role: Role,
    scaffold: Any = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    max_wait_secs: float | None = 7200,
) -> SessionCreator:
    """The creator of a process with this role."""
    if role.is_chief:
        return ChiefSessionCreator(scaffold, role.master, role.config, checkpoint_dir)
    return WorkerSessionCreator(scaffold, role.master, role.config, max_wait_secs, checkpoint_dir)


def _check(scaffold: Any) -> None:
    """Raise TypeError for what is neither a scaffold nor one that the graph's framework has."""
    kinds = (Scaffold, *launcher_of(get_default_graph()).scaffolds)
    if scaffold is not None and not isinstance(scaffold, kinds):
        raise TypeError(f"scaffold must be a Scaffold, got {scaffold!r}")

"""``SessionCreator``: creates the raw sessions of a chief, or of a worker that waits for one."""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from runhooks import arguments, clock
from runhooks.contract import RawSession, StopRequest
from runhooks.graph import get_default_graph
from runhooks.graph.opener import Place, Role
from runhooks.ranks import current_group
from runhooks.session.opening import opener_of
from runhooks.session.scaffold import Scaffold
from runhooks.stores import masked

_log = logging.getLogger("runhooks")

#: Between two looks at what the chief has done: a tenth of the wait so far, within these limits.
_LOOK_AGAIN_SECS = (0.2, 5.0)
_SAY_AGAIN_SECS = 60.0


class SessionCreator(ABC):
    """Creates the raw sessions of a monitored session; extend it to create them yourself.

    The graph is final from the first session on if ``create_session`` finalizes a scaffold.
    """

    #: Asked when the monitored session is to stop; a long wait in ``create_session`` listens to it.
    stop_request = StopRequest()

    #: Whether every state in a checkpoint should belong to a hook or an input here. A worker
    #: restores what the chief has saved, and does not have the chief's hooks.
    owns_all_states: ClassVar[bool] = True

    #: Whether this process is the chief, or does not say so: of several ranks one is.
    is_chief: ClassVar[bool] = True

    #: The directory whose latest checkpoint its sessions restore; None: they restore none.
    restores_from: str | os.PathLike[str] | None = None

    @abstractmethod
    def create_session(self) -> RawSession:
        """Return a new session of the default graph, ready to run."""


class ChiefSessionCreator(SessionCreator):
    """Restores a checkpoint if there is one, and initializes the session otherwise.

    Args:
        scaffold: What the session needs before training; None: a new ``Scaffold``.
        master: The server of TensorFlow's sessions; leave it out for other graphs.
        config: The configuration of TensorFlow's sessions; leave it out for other graphs.
        checkpoint_dir: A directory whose newest sound checkpoint is restored.
        checkpoint_filename_with_path: The path of one checkpoint to restore instead.

    Raises:
        ValueError: If both paths are given, or ``master`` or ``config`` for a runhooks graph.
        TypeError: If ``scaffold`` is not a scaffold.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
    ) -> None:
        opener_of(get_default_graph()).check_target(master, config)
        arguments.directory(
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
        )
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError(
                "checkpoint_dir and checkpoint_filename_with_path cannot both be given, "
                + masked(f"got {checkpoint_dir!r} and {checkpoint_filename_with_path!r}")
            )
        _check(scaffold)
        self._scaffold = scaffold or Scaffold()
        self._target = (master, config)
        self._checkpoint_dir = self.restores_from = _resolved(checkpoint_dir)
        self._checkpoint = _resolved(checkpoint_filename_with_path)

    def create_session(self) -> RawSession:
        """Raises FailedPreconditionError if the scaffold finds the session not ready."""
        scaffold, opener = self._scaffold.finalize(), opener_of(get_default_graph())
        session: RawSession = opener.open_chief(
            scaffold, *self._target, self._checkpoint_dir, self._checkpoint
        )
        return session


class WorkerSessionCreator(SessionCreator):
    """Starts from a checkpoint of the chief, the process with ``is_chief=True``.

    It waits until there is a checkpoint in ``checkpoint_dir`` and the scaffold finds the session
    ready. Without a ``checkpoint_dir``, and as one of several ranks, it starts as a chief does. On
    a ``tf.Graph`` it waits until the chief has made the session at ``master`` ready.

    Args:
        scaffold: What the session needs before training; None: a new ``Scaffold``.
        master: The server of TensorFlow's sessions; leave it out for other graphs.
        config: The configuration of TensorFlow's sessions; leave it out for other graphs.
        max_wait_secs: The maximum wait in seconds; None: forever.
        checkpoint_dir: Where the chief saves; on a ``tf.Graph``, only used in messages.
    """

    owns_all_states: ClassVar[bool] = False
    is_chief: ClassVar[bool] = False

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float | None = 30 * 60,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        opener_of(get_default_graph()).check_target(master, config)
        arguments.directory(checkpoint_dir=checkpoint_dir)
        _check(scaffold)
        self._scaffold = scaffold or Scaffold()
        self._target = (master, config)
        self._checkpoint_dir = self.restores_from = _resolved(checkpoint_dir)
        self._max_wait_secs = math.inf if max_wait_secs is None else max_wait_secs
        where = f" and checkpoint_dir={str(checkpoint_dir)!r}" if checkpoint_dir else ""
        self._chief = f"the chief, the process with is_chief=True{where}"

    def create_session(self) -> RawSession:
        """Raises DeadlineExceededError if the chief takes too long, or at a request to stop."""
        scaffold, opener = self._scaffold.finalize(), opener_of(get_default_graph())
        start, said = clock.monotonic(), -math.inf
        if opener.joins_ranks and current_group().size > 1:  # which all start together
            opened: RawSession = opener.open_chief(
                scaffold, *self._target, self._checkpoint_dir, None
            )
            return opened
        while True:
            found, lacking = opener.try_worker(scaffold, *self._target, self._checkpoint_dir)
            if found is not None:
                session: RawSession = found
                return session
            now = clock.monotonic()
            waited = now - start
            if waited >= self._max_wait_secs or self.stop_request.reason is not None:
                message = self._too_late(waited, lacking)
                raise opener.deadline_error(message, self._checkpoint_dir) from lacking
            if now >= said + _SAY_AGAIN_SECS:
                self._say(waited, lacking)
                said = now
            shortest, longest = _LOOK_AGAIN_SECS
            # The chief is another process, maybe on another machine: all there is to do is to look.
            pause = min(max(shortest, waited / 10), longest, self._max_wait_secs - waited)
            self.stop_request.wait(pause)

    def _say(self, waited: float, lacking: Exception | None) -> None:
        level = logging.WARNING if waited >= _SAY_AGAIN_SECS else logging.INFO
        limit = self._max_wait_secs
        _log.log(
            level, "waiting for %s, %.0f of %g seconds: %s", self._chief, waited, limit, lacking
        )

    def _too_late(self, waited: float, lacking: Exception | None) -> str:
        end = self.stop_request.reason or f"max_wait_secs={self._max_wait_secs:g} has passed"
        secs = round(waited, 2)
        return f"waited {secs:g} seconds for {self._chief}: {lacking}; is it running? ({end})"


def creator_for(
    role: Role,
    scaffold: Any = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    max_wait_secs: float | None = 7200,
) -> SessionCreator:
    """Return the creator for a process with this role."""
    if role.is_chief:
        return ChiefSessionCreator(scaffold, role.master, role.config, checkpoint_dir)
    return WorkerSessionCreator(scaffold, role.master, role.config, max_wait_secs, checkpoint_dir)


def _resolved(place: Place) -> Place:
    """Return ``place``, which is to mean the same after a change of the working directory."""
    return opener_of(get_default_graph()).resolve(place) if place else place


def _check(scaffold: Any) -> None:
    """Raise TypeError unless ``scaffold`` is a scaffold, ours or one of the graph's framework."""
    kinds = (Scaffold, *opener_of(get_default_graph()).scaffolds)
    if scaffold is not None and not isinstance(scaffold, kinds):
        raise TypeError(f"scaffold must be a Scaffold, got {scaffold!r}")

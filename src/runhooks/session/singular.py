"""``SingularMonitoredSession``: a monitored session that is not recovered."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from runhooks.contract import RawSession, SessionRunHook
from runhooks.session.creators import ChiefSessionCreator
from runhooks.session.monitored import MonitoredSession
from runhooks.session.recoverable import RecoveryPolicy
from runhooks.session.scaffold import Scaffold


class SingularMonitoredSession(MonitoredSession):
    """A monitored session without recovery: if the session is lost, the error is raised.

    Like ``tf.compat.v1.train.SingularMonitoredSession``. The arguments are those of
    ``ChiefSessionCreator`` and ``MonitoredSession``.
    """

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        policy = RecoveryPolicy(failures=0)
        super().__init__(creator, hooks, stop_grace_period_secs, recovery=policy)

    def raw_session(self) -> RawSession | None:
        """Return the session without hooks; None after ``close``."""
        return self._tf_sess()

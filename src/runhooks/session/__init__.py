"""Sessions: what happens around a run, a layer a file.

Users open a ``monitored`` session. A run of it goes through ``recoverable`` and ``hooked`` to
``session``, which makes it a ``BoundRun`` of ``runs``; ``opening`` opens the session.
"""

from runhooks.session.monitored import MonitoredSession, SingularMonitoredSession, StepContext
from runhooks.session.recoverable import RecoveryPolicy
from runhooks.session.scaffold import (
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    WorkerSessionCreator,
)
from runhooks.session.session import Session
from runhooks.session.threads import Coordinator, LooperThread

__all__ = [
    "ChiefSessionCreator",
    "Coordinator",
    "LooperThread",
    "MonitoredSession",
    "RecoveryPolicy",
    "Scaffold",
    "Session",
    "SessionCreator",
    "SingularMonitoredSession",
    "StepContext",
    "WorkerSessionCreator",
]

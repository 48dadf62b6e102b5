"""Sessions: what happens around a run, a layer a file.

Users open a ``monitored`` session. A run of it goes through ``recoverable`` and ``hooked`` to
``session``, which computes it with an ``executable``; ``opening`` opens the session.
"""

from runhooks.session.coordinator import Coordinator
from runhooks.session.creators import ChiefSessionCreator, SessionCreator, WorkerSessionCreator
from runhooks.session.looper_thread import LooperThread
from runhooks.session.monitored import MonitoredSession
from runhooks.session.recoverable import RecoveryPolicy
from runhooks.session.scaffold import Scaffold
from runhooks.session.session import Session
from runhooks.session.singular import SingularMonitoredSession
from runhooks.session.step_context import StepContext

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

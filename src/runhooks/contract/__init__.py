"""The contract of hooks: their methods, the messages of a run, the session they see."""

from runhooks.contract.life_cycle import LIFE_CYCLE
from runhooks.contract.prepared_run import PreparedRun
from runhooks.contract.run import SessionRunArgs, SessionRunContext, SessionRunValues
from runhooks.contract.session import RawSession, Stateful, StopSignal
from runhooks.contract.session_run_hook import SessionRunHook
from runhooks.contract.snapshot import Snapshot
from runhooks.contract.stop_request import StopRequest

__all__ = [
    "LIFE_CYCLE",
    "PreparedRun",
    "RawSession",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "Snapshot",
    "Stateful",
    "StopRequest",
    "StopSignal",
]

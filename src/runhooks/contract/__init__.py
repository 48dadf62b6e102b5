"""The contract of hooks: their methods, the messages of a run, the session they see."""

from runhooks.contract.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.contract.life_cycle import LIFE_CYCLE
from runhooks.contract.session import (
    PreparedRun,
    RawSession,
    Snapshot,
    Stateful,
    StopRequest,
    StopSignal,
)

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

"""What a hook is: its methods, what it exchanges with a session, and its life cycle."""

from runhooks.contract.life_cycle import LIFE_CYCLE
from runhooks.contract.run import SessionRunArgs, SessionRunContext, SessionRunValues
from runhooks.contract.session import RawSession, StopSignal
from runhooks.contract.session_run_hook import SessionRunHook

__all__ = [
    "LIFE_CYCLE",
    "RawSession",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StopSignal",
]

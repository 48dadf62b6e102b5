"""Checkpoints: whole or absent, checked when read, never a pickle."""

from runhooks.checkpoint.format import read_checkpoint, write_checkpoint
from runhooks.checkpoint.latest import checkpoint_step, checkpoints, latest_checkpoint
from runhooks.checkpoint.restore import restore_latest
from runhooks.checkpoint.saver import Saver
from runhooks.checkpoint.snapshot import SavableSession, Snapshot

__all__ = [
    "SavableSession",
    "Saver",
    "Snapshot",
    "checkpoint_step",
    "checkpoints",
    "latest_checkpoint",
    "read_checkpoint",
    "restore_latest",
    "write_checkpoint",
]

"""Checkpoints: whole or absent, checked when read, never a pickle."""

from runhooks.checkpoint.background_save import BackgroundSave, save_under_way
from runhooks.checkpoint.format import read_checkpoint, write_checkpoint
from runhooks.checkpoint.latest import checkpoint_step, checkpoints, latest_checkpoint
from runhooks.checkpoint.restore import restore_latest
from runhooks.checkpoint.retention import Keep, KeepBest, KeepEvery, KeepLast, KeepSteps
from runhooks.checkpoint.saver import Saver
from runhooks.checkpoint.snapshot import SavableSession, Snapshot

__all__ = [
    "BackgroundSave",
    "Keep",
    "KeepBest",
    "KeepEvery",
    "KeepLast",
    "KeepSteps",
    "SavableSession",
    "Saver",
    "Snapshot",
    "checkpoint_step",
    "checkpoints",
    "latest_checkpoint",
    "read_checkpoint",
    "restore_latest",
    "save_under_way",
    "write_checkpoint",
]

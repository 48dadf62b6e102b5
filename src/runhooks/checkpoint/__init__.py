"""Checkpoints: complete or absent, checked when they are read, never a pickle."""

from runhooks.checkpoint.background_save import BackgroundSave, save_under_way
from runhooks.checkpoint.best import BestCheckpoint, best_checkpoint
from runhooks.checkpoint.export import export
from runhooks.checkpoint.format import read_checkpoint, write_checkpoint
from runhooks.checkpoint.init_from import InitFrom
from runhooks.checkpoint.latest import checkpoint_step, checkpoints, latest_checkpoint
from runhooks.checkpoint.load import load
from runhooks.checkpoint.lock import DirectoryLock
from runhooks.checkpoint.retention import Keep, KeepBest, KeepEvery, KeepLast, KeepSteps
from runhooks.checkpoint.saver import Saver, restore_latest
from runhooks.contract import Snapshot

__all__ = [
    "BackgroundSave",
    "BestCheckpoint",
    "DirectoryLock",
    "InitFrom",
    "Keep",
    "KeepBest",
    "KeepEvery",
    "KeepLast",
    "KeepSteps",
    "Saver",
    "Snapshot",
    "best_checkpoint",
    "checkpoint_step",
    "checkpoints",
    "export",
    "latest_checkpoint",
    "load",
    "read_checkpoint",
    "restore_latest",
    "save_under_way",
    "write_checkpoint",
]

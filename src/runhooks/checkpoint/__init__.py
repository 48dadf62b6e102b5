"""Checkpoints: complete or absent, checked when they are read, never a pickle."""

from runhooks.checkpoint.format import (
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    read_checkpoint,
)
from runhooks.checkpoint.group import write_checkpoint
from runhooks.checkpoint.load import InitFrom, load
from runhooks.checkpoint.lock import DirectoryLock
from runhooks.checkpoint.retention import (
    BestCheckpoint,
    Keep,
    KeepBest,
    KeepEvery,
    KeepLast,
    KeepSteps,
    best_checkpoint,
)
from runhooks.checkpoint.saver import BackgroundSave, Saver, restore_latest, save_under_way
from runhooks.checkpoint.weights import export
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

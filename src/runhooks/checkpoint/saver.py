"""``Saver``: saves the variables of a session and brings them back."""

from __future__ import annotations

import logging
import operator
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runhooks import arguments
from runhooks.checkpoint import staging
from runhooks.checkpoint.format import Checkpoint, read_checkpoint, write_checkpoint
from runhooks.checkpoint.latest import find_checkpoints
from runhooks.checkpoint.retention import Retention
from runhooks.checkpoint.snapshot import SavableSession

_log = logging.getLogger("runhooks")

_HOUR_SECS = 3600


class Saver:
    """Saves checkpoints as ``tf.compat.v1.train.Saver`` does, and deletes old ones.

    ``var_list``: the variables to save and restore, or their names; None: all of the session.
    ``max_to_keep``: how many of the newest checkpoints to keep; None or 0: all. Of older ones
    one is kept every ``keep_checkpoint_every_n_hours`` hours. Those that an earlier process saved
    under the same name count as well.

    Raises TypeError or ValueError for arguments that make no sense.
    """

    def __init__(
        self,
        var_list: Iterable[Any] | None = None,
        *,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
    ) -> None:
        if isinstance(var_list, Mapping | str):
            raise TypeError(f"var_list must be a list of variables or names, got {var_list!r}")
        if max_to_keep is not None and max_to_keep < 0:
            raise ValueError(f"max_to_keep must not be negative, got {max_to_keep}")
        arguments.positive(keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours)
        self._only = None if var_list is None else [_name(variable) for variable in var_list]
        self._retention = Retention(max_to_keep or None, keep_checkpoint_every_n_hours * _HOUR_SECS)
        self._series: dict[Path, list[Checkpoint]] = {}  # by save_path, in the order of saving

    @property
    def last_checkpoints(self) -> list[str]:
        """The paths of the checkpoints that were not deleted, oldest first for each ``save_path``.

        Those of earlier processes are known from the first ``save`` on.
        """
        return [str(it.path) for series in self._series.values() for it in series]

    def save(
        self,
        sess: SavableSession,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
    ) -> str:
        """Save the session as ``<save_path>-<global_step>`` and return that path.

        ``global_step``: a number or a tensor; None: the path is ``save_path`` itself. When it
        returns, the checkpoint is on the disk, and those that it makes superfluous are deleted;
        of a directory that it had to make, the file system says when that is on the disk.

        Raises OSError if it cannot be written, TypeError or ValueError for a value that cannot be
        saved; all checkpoints of before are still there then.
        """
        base = Path(save_path)
        path, step = base, sess.global_step
        if global_step is not None:
            step = _value(sess, global_step)
            path = base.with_name(f"{base.name}-{step}")
        snapshot = sess.snapshot()
        if self._only is not None:
            snapshot = snapshot.only(self._only)
        series = self._series_of(base)
        staging.sweep(base.parent)
        previous = series[-1] if series else None
        try:
            saved = write_checkpoint(path, snapshot, global_step=step, previous=previous)
        except OSError as error:
            error.add_note(f"while saving checkpoint {path}; those saved before are still there")
            raise
        series[:] = [*(it for it in series if it.path != path), saved]
        self._delete_superseded(series)
        return str(path)

    def restore(self, sess: SavableSession, save_path: str | os.PathLike[str]) -> None:
        """Bring the checkpoint ``save_path`` into the session, whole or not at all.

        Raises NotFoundError if it is not there, DataLossError if it is damaged, ValueError if it
        is of another model.
        """
        snapshot = read_checkpoint(Path(save_path))
        try:
            sess.load(snapshot, only=self._only)
        except ValueError as error:
            error.add_note(f"while restoring checkpoint {save_path}")
            raise
        sess.restored_from = str(save_path) if self._only is None else None

    def _series_of(self, base: Path) -> list[Checkpoint]:
        """What is saved as ``base``; taken over, the first time, from earlier processes."""
        if base not in self._series:
            ours = re.compile(re.escape(base.name) + r"-\d+(\.replaced)?")
            self._series[base] = [
                it
                for it in find_checkpoints(base.parent)
                if it.complete and ours.fullmatch(it.path.name)
            ]
        return self._series[base]

    def _delete_superseded(self, series: list[Checkpoint]) -> None:
        for checkpoint in self._retention.superseded(series):
            series.remove(checkpoint)
            try:
                staging.discard(checkpoint.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("checkpoint %s could not be deleted: %s", checkpoint.path, error)
            else:
                _log.info("deleted checkpoint %s: newer ones are kept", checkpoint.path)


def _name(variable: Any) -> str:
    return variable if isinstance(variable, str) else str(variable.op.name)


def _value(sess: SavableSession, global_step: Any) -> int:
    try:
        return operator.index(global_step)
    except TypeError:  # a tensor, or the name of one
        return int(sess.run(global_step))

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
from runhooks.checkpoint.format import read_checkpoint, write_checkpoint
from runhooks.checkpoint.latest import find_checkpoints
from runhooks.checkpoint.retention import Retention, Saved
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
        self._saved: list[Saved] = []
        self._series_starts: dict[Path, float | None] = {}

    @property
    def last_checkpoints(self) -> list[str]:
        """The paths of the checkpoints that were not deleted, oldest first.

        Those of earlier processes are known from the first ``save`` on.
        """
        return [checkpoint.path for checkpoint in self._saved]

    def save(
        self,
        sess: SavableSession,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
    ) -> str:
        """Save the session as ``<save_path>-<global_step>`` and return that path.

        ``global_step``: a number or a tensor; None: the path is ``save_path`` itself. When it
        returns, the checkpoint is on the disk, and those that it makes superfluous are deleted.

        Raises OSError if it cannot be written, TypeError for a value that cannot be saved; the
        checkpoints of before are untouched then.
        """
        base = Path(save_path)
        path, step = base, sess.global_step
        if global_step is not None:
            step = _value(sess, global_step)
            path = base.with_name(f"{base.name}-{step}")
        snapshot = sess.snapshot()
        if self._only is not None:
            snapshot = snapshot.only(self._only)
        series_start = self._adopt(base)
        staging.sweep(base.parent)
        try:
            manifest = write_checkpoint(path, snapshot, global_step=step, series_start=series_start)
        except OSError as error:
            error.add_note(f"while saving checkpoint {path}; those saved before are untouched")
            raise
        self._series_starts[base] = manifest.series_start
        self._saved = [it for it in self._saved if it.path != str(path)]
        self._saved.append(Saved(str(path), manifest.wall_time))
        self._delete_superseded(manifest.series_start)
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

    def _adopt(self, base: Path) -> float | None:
        """Take over what is saved as ``base`` already; the start of that series, if any."""
        if base not in self._series_starts:
            ours = re.compile(re.escape(base.name) + r"-\d+(\.replaced)?")
            start = None
            for path, _, manifest in find_checkpoints(base.parent):
                if manifest is not None and ours.fullmatch(path.name):
                    self._saved.append(Saved(str(path), manifest.wall_time))
                    start = manifest.series_start
            self._series_starts[base] = start
        return self._series_starts[base]

    def _delete_superseded(self, series_start: float) -> None:
        for checkpoint in self._retention.superseded(self._saved, series_start):
            self._saved.remove(checkpoint)
            try:
                staging.discard(Path(checkpoint.path))
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

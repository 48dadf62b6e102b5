"""``restore_latest``: go on from the newest checkpoint that is sound."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from runhooks.checkpoint.latest import find_checkpoints
from runhooks.checkpoint.saver import Saver
from runhooks.checkpoint.snapshot import SavableSession
from runhooks.errors import DataLossError, NotFoundError

_log = logging.getLogger("runhooks")


def restore_latest(
    saver: Saver, sess: SavableSession, checkpoint_dir: str | os.PathLike[str]
) -> str | None:
    """Restore the sound checkpoint of a directory that was saved last; its path, None if none is.

    A damaged one is skipped with one warning. Raises DataLossError if all are damaged, and
    ValueError if the newest sound one is of another model: older ones are not tried then.
    """
    saver.wait()  # what it is saving is the latest as soon as it is there
    tried: set[Path] = set()
    damaged = []
    while (path := _newest(checkpoint_dir, tried)) is not None:
        tried.add(path)
        try:
            saver.restore(sess, path)
        except NotFoundError:  # another process removed it just now, having saved a newer one
            continue
        except DataLossError as error:
            _log.warning("%s; trying the one before it", error)
            damaged.append(error)
        else:
            return str(path)
    if damaged:
        raise DataLossError(
            f"none of the {len(damaged)} checkpoints in {checkpoint_dir} is sound; the newest: "
            f"{damaged[0]}. Move them away to begin anew",
            path=str(Path(checkpoint_dir)),
        ) from damaged[0]
    return None


def _newest(checkpoint_dir: str | os.PathLike[str], tried: Collection[Path]) -> Path | None:
    untried = [it.path for it in find_checkpoints(checkpoint_dir) if it.path not in tried]
    return untried[-1] if untried else None

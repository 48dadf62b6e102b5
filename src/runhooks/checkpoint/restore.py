"""``restore_latest``: go on from the newest checkpoint that is sound."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from runhooks.checkpoint.latest import find_checkpoints
from runhooks.checkpoint.saver import Saver
from runhooks.checkpoint.snapshot import SavableSession
from runhooks.errors import DataLossError, NotFoundError

_log = logging.getLogger("runhooks")


def restore_latest(
    saver: Saver, sess: SavableSession, checkpoint_dir: str | os.PathLike[str]
) -> str | None:
    """Restore the newest sound checkpoint in a directory; its path, or None if there is none.

    A damaged one is skipped with one warning. Raises DataLossError if all are damaged, and
    ValueError if the newest sound one is of another model: older ones are not tried then.
    """
    damaged = []
    for found in reversed(find_checkpoints(checkpoint_dir)):
        try:
            saver.restore(sess, found.path)
        except NotFoundError:  # another process removed it just now
            continue
        except DataLossError as error:
            _log.warning("%s; trying the one before it", error)
            damaged.append(error)
        else:
            return str(found.path)
    if damaged:
        raise DataLossError(
            f"none of the {len(damaged)} checkpoints in {checkpoint_dir} is sound; the newest: "
            f"{damaged[0]}. Move them away to begin anew",
            path=str(Path(checkpoint_dir)),
        ) from damaged[0]
    return None

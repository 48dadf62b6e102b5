"""All ranks of a group restore the same checkpoint: the newest that each of them can read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from runhooks.checkpoint.latest import newest_sound
from runhooks.checkpoint.places import place_of
from runhooks.errors import DataLossError, NotFoundError, PeerFailedError, described
from runhooks.ranks import Group
from runhooks.stores.path import AnyPath

Restore = Callable[[AnyPath], object]


def restore_together(
    group: Group, checkpoint_dir: str | os.PathLike[str], restore: Restore
) -> str | None:
    """Restore the newest checkpoint of a directory that no rank of ``group`` finds damaged.

    All ranks call it. The chief looks for the checkpoints. Each rank reads only what it needs of
    one, so that some may find a damage and others not.

    Args:
        group: The group.
        checkpoint_dir: The directory, which all ranks share.
        restore: Restores a checkpoint, in place of one that was restored before.

    Returns:
        The path of the checkpoint; None if there is none.

    Raises:
        DataLossError: All checkpoints are damaged.
        PeerFailedError: Another rank cannot restore for another reason.
        Exception: What ``restore`` raises.
    """
    talk = _Talk(group, place_of(checkpoint_dir), restore)
    return talk.lead() if group.is_chief else talk.follow()


class _Talk:
    """What the ranks say to each other: the chief which checkpoint to try, each how that went."""

    def __init__(self, group: Group, directory: AnyPath, restore: Restore) -> None:
        self._group = group
        self._directory = directory
        self._restore = restore
        self._is_over = False

    def lead(self) -> str | None:
        try:
            found = newest_sound(self._directory, self._lead_to)
        except Exception as error:
            if not self._is_over:
                damaged = str(error) if isinstance(error, DataLossError) else None
                self._tell({"damaged": damaged, "error": described(error)})
            raise
        if found is None:
            self._tell({})
            return None
        return str(found[0])

    def follow(self) -> str | None:
        while "path" in (told := self._tell(None)):
            path = self._directory / told["path"]
            try:
                self._try(path)
            except (DataLossError, NotFoundError):
                continue
            return str(path)
        if told.get("damaged"):
            raise DataLossError(told["damaged"], path=str(self._directory))
        if "error" in told:
            raise PeerFailedError(self._group.chief, told["error"])
        return None

    def _lead_to(self, path: AnyPath) -> None:
        self._tell({"path": path.name})
        self._try(path)

    def _tell(self, what: dict[str, Any] | None) -> dict[str, Any]:
        """Say ``what``, if this is the chief; return what the chief says."""
        told = self._group.gather("restoring tries", json.dumps(what))
        said: dict[str, Any] = json.loads(told[self._group.chief])
        return said

    def _try(self, path: AnyPath) -> None:
        """Restore ``path`` on all ranks, or raise on all."""
        failure: Exception | None = None
        outcome = {}
        try:
            self._restore(path)
        except DataLossError as error:
            outcome = {"damaged": str(error)}
        except Exception as error:  # noqa: BLE001 - raised below, once the others know
            if isinstance(error, NotFoundError) and self._group.is_chief:
                outcome = {"gone": str(error)}  # another process has just removed it
            else:
                failure, outcome = error, {"error": described(error)}
        replies = [json.loads(it) for it in self._group.gather("restored", json.dumps(outcome))]
        self._is_over = any("error" in reply for reply in replies)
        if failure is not None:
            raise failure
        for rank, reply in enumerate(replies):
            if "error" in reply:
                raise PeerFailedError(rank, reply["error"])
        if "gone" in replies[self._group.chief]:
            raise NotFoundError(replies[self._group.chief]["gone"], path=str(path))
        for rank, reply in enumerate(replies):
            if "damaged" in reply:
                by = "" if rank == self._group.rank else f"rank {rank} says: "
                raise DataLossError(by + reply["damaged"], path=str(path))

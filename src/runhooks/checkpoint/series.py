"""``Series``: the checkpoints that are saved one after the other under one name."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from runhooks.checkpoint import staging
from runhooks.checkpoint.format import Checkpoint, Content, write_content
from runhooks.checkpoint.latest import find_checkpoints
from runhooks.checkpoint.retention import Keep, superseded

_log = logging.getLogger("runhooks")


class Series:
    """The checkpoints ``<base>-<step>``, those of earlier processes among them.

    ``keep``: the rules by which old ones are kept; None: all are.
    """

    def __init__(self, base: Path, keep: Sequence[Keep] | None) -> None:
        self._base = base
        self._keep = keep
        ours = re.compile(re.escape(base.name) + r"-\d+(\.replaced)?")
        #: Those that were not deleted, in the order of saving.
        self.saved: Sequence[Checkpoint] = [
            it
            for it in find_checkpoints(base.parent)
            if it.complete and ours.fullmatch(it.path.name)
        ]

    def save(
        self, path: Path, content: Content, global_step: int | None, metrics: Mapping[str, float]
    ) -> None:
        """Save ``content`` as ``path``; when it is on the disk, delete what that makes superfluous.

        Raises as ``write_content``.
        """
        staging.sweep(self._base.parent)
        previous = self.saved[-1] if self.saved else None
        try:
            new = write_content(
                path, content, global_step=global_step, previous=previous, metrics=metrics
            )
        except OSError as error:
            error.add_note(f"while saving checkpoint {path}; no other was changed")
            raise
        self.saved = [*(it for it in self.saved if it.path != path), new]
        if self._keep is not None:
            self._delete(superseded(self._keep, self.saved))

    def _delete(self, unwanted: Sequence[Checkpoint]) -> None:
        self.saved = [it for it in self.saved if it not in unwanted]
        rules = ", ".join(map(repr, self._keep or ()))
        why = f"none of {rules} keeps it" if rules else "only the newest is kept"
        for checkpoint in unwanted:
            try:
                staging.discard(checkpoint.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("checkpoint %s could not be deleted: %s", checkpoint.path, error)
            else:
                known = "".join(f", {name}={it:g}" for name, it in checkpoint.metrics.items())
                _log.info("deleted checkpoint %s%s: %s", checkpoint.path, known, why)

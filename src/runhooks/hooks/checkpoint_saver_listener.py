"""``CheckpointSaverListener``: called before and after each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from runhooks.contexts import contextmanager
from runhooks.contract import RawSession
from runhooks.errors import add_note


class CheckpointSaverListener:
    """Base class of objects that a ``CheckpointSaverHook`` calls; its methods do nothing.

    As in ``tf.compat.v1.train``.
    """

    def begin(self) -> None:
        """Called in the hook's ``begin``; may add to the default graph."""

    def before_save(self, session: RawSession, global_step_value: int) -> None:
        """Called before a checkpoint of that global step is saved."""

    def after_save(self, session: RawSession, global_step_value: int) -> bool | None:
        """Called when the checkpoint is on disk; return True to ask the loop to stop.

        With an asynchronous saver ``session`` may be some steps ahead.
        """
        return None

    def end(self, session: RawSession, global_step_value: int) -> None:
        """Called at the end, after the last checkpoint."""


@contextmanager
def naming_listener(listener: CheckpointSaverListener, phase: str) -> Iterator[None]:
    """Add a note to any error from the ``with`` block: which listener raised it."""
    try:
        yield
    except Exception as error:
        add_note(error, f"in {phase} of the listener {type(listener).__name__}")
        raise

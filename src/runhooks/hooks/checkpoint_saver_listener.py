"""``CheckpointSaverListener``: what is done before and after each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runhooks.contract import RawSession


class CheckpointSaverListener:
    """Extend it and give it to a ``CheckpointSaverHook``; every method here does nothing.

    As in ``tf.compat.v1.train``.
    """

    def begin(self) -> None:
        """Called when the hook begins; the default graph may be added to."""

    def before_save(self, session: RawSession, global_step_value: int) -> None:
        """Called before a checkpoint of that step is saved."""

    def after_save(self, session: RawSession, global_step_value: int) -> bool | None:
        """Called when it is on the disk; return True to ask the loop to stop.

        With an asynchronous saver ``session`` may have gone on by some steps.
        """
        return None

    def end(self, session: RawSession, global_step_value: int) -> None:
        """Called at the end, after the last checkpoint."""


@contextmanager
def naming_listener(listener: CheckpointSaverListener, phase: str) -> Iterator[None]:
    """Note on any error out of the ``with`` block which listener it came from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {phase} of the listener {type(listener).__name__}")
        raise

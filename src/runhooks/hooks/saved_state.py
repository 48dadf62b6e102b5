"""``SavedStateHook``: saves the state of any object in the checkpoints."""

from __future__ import annotations

from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunHook


class SavedStateHook(SessionRunHook):
    """Saves the state of objects outside the graph, and restores it when a run resumes.

    Inputs of the graph need no hook. An object that is not in a checkpoint stays as it is.

    Args:
        **objects: Anything with ``state_dict`` and ``load_state_dict``, such as a data loader whose
            batches are fed, by its name in checkpoints. The names of all such hooks must differ.

    Raises:
        TypeError: For an object without these methods.
    """

    def __init__(self, **objects: Any) -> None:
        arguments.stateful(**objects)
        self.saved_objects = objects

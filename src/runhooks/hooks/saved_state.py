"""``SavedStateHook``: keeps any object with a state in the checkpoints."""

from __future__ import annotations

from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunHook


class SavedStateHook(SessionRunHook):
    """Saves the state of objects that are no part of the graph, and gives it back on a resume.

    ``parts``: anything with ``state_dict`` and ``load_state_dict``, such as a data loader whose
    batches are fed, by the name it has in the checkpoints, whichever hook it is given to. A part
    that a checkpoint does not know stays as it is. Inputs of the graph need no hook.

    Raises TypeError for a part without these methods.
    """

    def __init__(self, **parts: Any) -> None:
        arguments.stateful(**parts)
        self.hook_parts = parts

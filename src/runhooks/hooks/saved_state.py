"""``SavedStateHook``: keeps any object with a state in the checkpoints."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

from runhooks.contract import SessionRunHook

_log = logging.getLogger("runhooks")


class SavedStateHook(SessionRunHook):
    """Saves the state of objects that are no part of the graph, and gives it back on a resume.

    ``parts``: anything with ``state_dict`` and ``load_state_dict``, such as a data loader whose
    batches are fed, by the name it has in the checkpoints. A part that a checkpoint does not know
    stays as it is. Inputs of the graph need no hook.

    Raises TypeError for a part without these methods.
    """

    def __init__(self, **parts: Any) -> None:
        for name, part in parts.items():
            for method in ("state_dict", "load_state_dict"):
                if not callable(getattr(part, method, None)):
                    raise TypeError(
                        f"{name} must have state_dict and load_state_dict, got {part!r} "
                        f"without {method}"
                    )
        self._parts = parts

    def state_dict(self) -> Mapping[str, Any]:
        # Copied, here and there: what a part hands out may be what it goes on to change.
        return {name: copy.deepcopy(part.state_dict()) for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts.items():
            if name in state:
                part.load_state_dict(copy.deepcopy(state[name]))
        if self._parts.keys() != state.keys():
            _log.warning(
                "the checkpoint has states of %s, and this program of %s: others begin anew",
                sorted(state),
                sorted(self._parts),
            )

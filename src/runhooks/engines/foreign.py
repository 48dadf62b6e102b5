"""Graphs and sessions that a framework has of its own, found without importing the framework.

Whoever has such a graph or session has imported the framework already.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def default_graph() -> Any | None:
    """The default graph of TensorFlow, where it builds one; None where it is eager or not there."""
    if getattr(sys.modules.get("tensorflow"), "compat", None) is None:
        return None  # not imported, or only half
    return importlib.import_module("runhooks.engines.tensorflow.graph").current_graph()


def observed(session: Any) -> Any:
    """What hooks can ask of ``session``, which a framework's own loop runs.

    Raises TypeError for what is no session.
    """
    if getattr(sys.modules.get("tensorflow"), "compat", None) is not None:
        adopted = importlib.import_module("runhooks.engines.tensorflow.adopted")
        if adopted.is_session(session):
            return adopted.observed(session)
    raise TypeError(f"the session must have a global_step, or be TensorFlow's, got {session!r}")

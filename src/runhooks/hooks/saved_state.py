"""``SavedStateHook``: saves the state of any object in the checkpoints."""

from __future__ import annotations

from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunHook
from runhooks.graph.generators import GeneratorState, has_generator_state


class SavedStateHook(SessionRunHook):
    """Saves the state of objects outside the graph, and restores it when a run resumes.

    Inputs of the graph need no hook. An object that the checkpoint does not contain is left
    unchanged.

        hooks = [rh.SavedStateHook(loader=loader, noise=np.random.default_rng(0))]

    Args:
        **objects: By name in checkpoints: anything with ``state_dict`` and ``load_state_dict``,
            such as a data loader whose batches are fed; a random generator of NumPy or
            ``random.Random``; or the modules ``numpy.random`` and ``random``, for their global
            generators. The names in all such hooks must differ.

    Raises:
        TypeError: For an object without these methods.
    """

    def __init__(self, **objects: Any) -> None:
        self.saved_objects = {
            name: GeneratorState(it) if has_generator_state(it) else it
            for name, it in objects.items()
        }
        arguments.stateful(**self.saved_objects)

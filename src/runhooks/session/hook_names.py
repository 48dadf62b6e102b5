"""Which objects are hooks, what they are called in messages and checkpoints, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runhooks.contract import SessionRunHook

_METHODS = ("begin", "after_create_session", "before_run", "after_run", "end")


def in_order(hooks: Iterable[Any] | None) -> list[SessionRunHook]:
    """The hooks as given, those whose ``last`` is true after all others.

    Anything that has the five methods is a hook, TensorFlow's among them. Raises TypeError for
    anything else.
    """
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of SessionRunHooks, got {hooks!r}")
    given = list(hooks or ())
    for hook in given:
        lacking = [name for name in _METHODS if not callable(getattr(hook, name, None))]
        if lacking or isinstance(hook, type):
            what = "a class: create it first" if isinstance(hook, type) else f"without {lacking}"
            raise TypeError(f"hooks must be SessionRunHooks, got {hook!r}, {what}")
    return sorted(given, key=lambda hook: bool(getattr(hook, "last", False)))


def named(hooks: Iterable[SessionRunHook]) -> dict[str, SessionRunHook]:
    """The hooks by name: their own, or that of their class; ``_1``, ``_2`` added if it is taken."""
    names: dict[str, SessionRunHook] = {}
    for hook in hooks:
        own = getattr(hook, "hook_name", None)
        name = kind = own if isinstance(own, str) and own else type(hook).__name__
        number = 0
        while name in names:
            number += 1
            name = f"{kind}_{number}"
        names[name] = hook
    return names
